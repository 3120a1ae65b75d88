//! The suites hold what they say they hold.

use super::*;

fn header(text: &str) -> (usize, u32) {
    let line = text.lines().find(|l| l.starts_with("# problems ")).expect("a header with counts");
    let words: Vec<&str> = line.split_whitespace().collect();
    let layers = words.iter().position(|w| *w == "layers").map_or(0, |at| words[at + 1].parse().unwrap());
    (words[2].parse().unwrap(), layers)
}

fn gmac(entries: &[Entry]) -> f64 {
    entries.iter().map(|e| f64::from(e.layers) * e.problem.flops() as f64 / 2e9).sum()
}

/// Convolution layers and multiply-adds of each network as its publishers count them: torchvision's
/// model tables give all GMAC to two decimals, fully connected layers (here: third column) included;
/// Ultralytics gives 8.7 GFLOP for YOLOv8n. For the U-Net figure 1 of its paper has 23 convolutions; its
/// sum and the decoder's are not published and are checked layer by layer below instead.
fn conv(problem: &Problem) -> &ConvProblem {
    problem.conv().expect("a convolution")
}

#[test]
fn products_of_matrices_are_lines_too() {
    let [one] = select("gemmfp16 -b 2 -m 8 -k 9 -n 5 -v 1").unwrap().try_into().unwrap();
    assert_eq!((one.label.as_str(), one.directions.clone()), ("2 of 8x9x5 NT", vec![Direction::Forward]));
    let wide = one.pass(Direction::Forward, Some(DType::F32)).unwrap();
    assert_eq!(wide.to_string(), "MIOpenDriver gemm -b 2 -m 8 -k 9 -n 5 -u 0 -v 1 -A 1 -B 0 -t 1");
    assert_eq!(one.clone().with_batch(7).unwrap(), one);
}

#[test]
fn networks_add_up_to_the_published_totals() {
    let published: [(&str, u32, f64, f64, f64); 7] = [
        ("resnet18", 20, 512.0 * 1000.0, 1.81, 0.005),
        ("resnet50", 53, 2048.0 * 1000.0, 4.09, 0.005),
        ("vgg16", 13, 25088.0 * 4096.0 + 4096.0 * 4096.0 + 4096.0 * 1000.0, 15.47, 0.005),
        ("mobilenet_v2", 52, 1280.0 * 1000.0, 0.30, 0.005),
        ("efficientnet_b0", 81, 1280.0 * 1000.0, 0.39, 0.005),
        ("densenet121", 120, 1024.0 * 1000.0, 2.83, 0.005),
        ("yolov8n", 64, 0.0, 8.7 / 2.0, 0.025),
    ];
    for (net, layers, linear, total, slack) in published {
        let entries = load(&format!("nets:{net}")).unwrap();
        let sum = gmac(&entries) + linear / 1e9;
        assert_eq!(entries.iter().map(|e| e.layers).sum::<u32>(), layers, "{net}");
        assert!((sum - total).abs() <= slack, "{net}: {sum} GMAC, published {total}");
    }
}

#[test]
fn headers_count_what_follows() {
    for (net, text) in NETS {
        let entries = load(&format!("nets:{net}")).unwrap();
        assert_eq!(header(text), (entries.len(), entries.iter().map(|e| e.layers).sum()), "{net}");
    }
    assert_eq!(header(SEEDS).0, load("seeds").unwrap().len());
}

/// Sizes of figure 1 of Ronneberger et al. (2015), from the paper.
#[test]
fn unet_follows_its_figure() {
    let entries = load("nets:unet").unwrap();
    let ups: Vec<_> = entries.iter().filter(|e| conv(&e.problem).spec().transposed).collect();
    let sizes: Vec<_> = ups
        .iter()
        .map(|e| (conv(&e.problem).spec().h, conv(&e.problem).out_h(), conv(&e.problem).spec().k))
        .collect();
    assert_eq!(sizes, [(28, 56, 512), (52, 104, 256), (100, 200, 128), (196, 392, 64)]);
    let outs: Vec<_> = entries
        .iter()
        .filter(|e| !conv(&e.problem).spec().transposed)
        .map(|e| conv(&e.problem).out_h())
        .collect();
    let figure = [570, 568, 282, 280, 138, 136, 66, 64, 30, 28, 54, 52, 102, 100, 198, 196, 390, 388, 388];
    assert_eq!(outs, figure);
    assert!(entries.iter().all(|e| conv(&e.problem).spec().pad == [0, 0]));
}

/// The decoder ends in 128 -> 3 channels at 512x512 and doubles its size three times from 64.
#[test]
fn vae_decoder_reaches_the_image() {
    let entries = load("nets:sd_vae_decoder").unwrap();
    let last = conv(&entries.last().unwrap().problem).spec();
    assert_eq!((last.c, last.k, last.h, last.r), (128, 3, 512, 3));
    for size in [64, 128, 256, 512] {
        assert!(
            entries.iter().any(|e| conv(&e.problem).spec().h == size && conv(&e.problem).spec().r == 3),
            "no 3x3 at {size}"
        );
    }
    // Per stage: 2 blocks at the end, 3 at each size, 2 convolutions a block, shortcuts where channels change,
    // one more after each doubling, plus conv_in, conv_out and the 1x1 before them.
    assert_eq!(entries.iter().map(|e| e.layers).sum::<u32>(), 2 * 2 + 4 * 3 * 2 + 2 + 3 + 3);
}

#[test]
fn seeds_hold_the_sweeps_and_the_hang_list() {
    let seeds = load("seeds").unwrap();
    let holds = |p: &Problem| seeds.iter().any(|e| e.problem == *p);
    for shape in load("shapes").unwrap().iter().filter(|e| e.label.starts_with("seed_")) {
        assert!(holds(&shape.problem), "{}", shape.label);
    }
    let square = |n, c, k, size| {
        let spec = ConvSpec { n, c, k, h: size, w: size, r: 3, s: 3, pad: [1, 1], ..ConvSpec::default() };
        Problem::from(ConvProblem::new(spec).unwrap())
    };
    let hang: [(i64, i64, &[i64]); 3] = [
        (16, 32, &[33, 42, 44, 48, 49, 64, 96, 128, 224, 256, 512]),
        (32, 64, &[42, 44, 49, 56, 64, 96, 112, 128, 224, 256, 512]),
        (64, 128, &[42, 44, 65, 80, 96, 112, 128, 224, 256, 512]),
    ];
    for (c, k, sizes) in hang {
        for &size in sizes {
            assert!(holds(&square(1, c, k, size)), "{c} -> {k} at {size}");
        }
    }
    for n in [1, 2, 4, 8, 16, 32] {
        assert!(holds(&square(n, 64, 128, 56)), "batch {n}");
    }
}

#[test]
fn shapes_have_the_work_their_table_says() {
    let (rows, entries) = (shape_rows().unwrap(), load("shapes").unwrap());
    assert_eq!(rows.len(), 31);
    for row in &rows {
        let entry =
            entries.iter().find(|e| e.label == row.name).unwrap_or_else(|| panic!("{} is lost", row.name));
        let gflop = entry.problem.flops() as f64 / 1e9;
        assert!((gflop - row.gflop).abs() < 1e-6, "{}: {gflop} against {}", row.name, row.gflop);
    }
}

#[test]
fn every_entry_has_all_passes_in_all_types_and_a_label_of_its_own() {
    for name in names() {
        let entries = load(&name).unwrap();
        let labels: HashSet<_> = entries.iter().map(|e| &e.label).collect();
        assert_eq!(labels.len(), entries.len(), "{name}");
        for entry in &entries {
            assert_eq!(entry.directions, Direction::ALL, "{name} {}", entry.label);
            for (direction, dtype) in Direction::ALL.into_iter().flat_map(|d| DType::ALL.map(|t| (d, t))) {
                let pass = entry.pass(direction, Some(dtype)).unwrap();
                let spec = conv(&pass).spec();
                assert_eq!((spec.direction, spec.dtype), (direction, dtype));
            }
        }
    }
}

#[test]
fn nets_is_the_union_of_its_networks() {
    let all: HashSet<_> = load("nets").unwrap().into_iter().map(|e| e.problem).collect();
    let mut union = HashSet::new();
    for (net, _) in NETS {
        union.extend(load(&format!("nets:{net}")).unwrap().into_iter().map(|e| e.problem));
    }
    assert_eq!(all, union);
    assert_eq!(all.len(), load("nets").unwrap().len(), "a problem is there twice");
}

#[test]
fn words_are_suites_lines_or_files() {
    let line = "MIOpenDriver convfp16 -n 2 -c 8 -H 9 -W 9 -k 4 -y 3 -x 3 -F 2 # mine";
    let [one] = select(line).unwrap().try_into().unwrap();
    assert_eq!(
        (one.label.as_str(), one.layers, one.directions.clone()),
        ("mine", 1, vec![Direction::BackwardData])
    );
    assert_eq!(one.pass(Direction::BackwardData, None).unwrap().dtype(), DType::F16);
    assert_eq!(conv(&one.clone().with_batch(5).unwrap().problem).spec().n, 5);
    let bare = "MIOpenDriver conv -n 2 -c 8 -H 9 -W 7 -k 4 -y 3 -x 1 -p 1 -u 2 -v 2 -g 4 -m trans";
    assert_eq!(select(bare).unwrap()[0].label, "n2 8->4 9x7 3x1 s2 p1x0 g4 transposed");
    assert!(matches!(one.with_batch(0), Err(ProblemError::Field { field: "n", .. })));

    let folder = std::env::temp_dir().join(format!("wave32-suites-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (good, bad, empty) = (folder.join("good"), folder.join("bad"), folder.join("empty"));
    std::fs::write(&good, format!("# two equal\n\n{line}\n{line}\n")).unwrap();
    std::fs::write(&bad, format!("{line}\nMIOpenDriver conv -n 1 -c x\n")).unwrap();
    std::fs::write(&empty, "# nothing\n").unwrap();
    assert_eq!(select(good.to_str().unwrap()).unwrap().len(), 1);
    let error = select(bad.to_str().unwrap()).unwrap_err().to_string();
    assert!(error.contains("bad:2"), "{error}");
    assert!(matches!(select(empty.to_str().unwrap()), Err(SuiteError::Empty(_))));
    assert!(matches!(select(folder.to_str().unwrap()), Err(SuiteError::File { .. })));
    std::fs::remove_dir_all(&folder).unwrap();

    let error = select("nets:alexnet").unwrap_err().to_string();
    assert!(error.contains("nets:resnet50"), "{error}");
    assert_eq!(counted("a x2 b"), ("a x2 b".to_string(), 1));
    assert_eq!(counted("a x3"), ("a".to_string(), 3));
}
