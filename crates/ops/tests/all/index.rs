//! Indexing against plain loops.

use crate::common;

use common::{TestQueue, close, errors, get, put, put_plain, raised, random, room, rounded, stream, values};
use rand::Rng;
use rand::rngs::StdRng;
use wave32_ops::index;
use wave32_ops::{ElementType, View};

fn picks(random: &mut StdRng, count: u64, from: i64, limit: u64) -> Vec<f64> {
    (0..count).map(|_| random.random_range(from..limit as i64) as f64).collect()
}

/// Strides of another order of the dimensions, with gaps.
fn shuffled(random: &mut StdRng, sizes: &[u64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    (1..order.len()).for_each(|at| order.swap(at, random.random_range(0..=at)));
    let (mut strides, mut stride) = (vec![0; sizes.len()], random.random_range(1..3));
    for dim in order {
        strides[dim] = stride;
        stride *= sizes[dim].max(1) + random.random_range(0..2);
    }
    strides
}

fn tensor(
    stream: &mut TestQueue,
    random: &mut StdRng,
    dtype: ElementType,
    sizes: &[u64],
    data: &[f64],
) -> View {
    let strides = shuffled(random, sizes);
    put(stream, dtype, sizes, &strides, data)
}

/// Index of an element of a plain tensor.
fn at(sizes: &[u64], place: &[u64]) -> usize {
    sizes.iter().zip(place).fold(0, |sum, (&size, &i)| sum * size as usize + i as usize)
}

/// Every place of a tensor, in order.
fn places(sizes: &[u64]) -> Vec<Vec<u64>> {
    sizes.iter().fold(vec![vec![]], |all, &size| {
        all.iter().flat_map(|place| (0..size).map(move |i| [&place[..], &[i]].concat())).collect()
    })
}

fn replaced(place: &[u64], dim: usize, by: f64) -> Vec<u64> {
    let mut place = place.to_vec();
    place[dim] = by as u64;
    place
}

#[test]
fn select_gather_and_scatter() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for dtype in ElementType::ALL {
        let kind = [ElementType::I64, ElementType::I32][random.random_range(0..2)];
        let (sizes, dim) = ([3, 5, 2, 7], random.random_range(0..4));
        let what = format!("{dtype:?}, dim {dim}, seed {seed}");
        let data = values(&mut random, dtype, 210, 90.0);
        let input = tensor(&mut stream, &mut random, dtype, &sizes, &data);
        let errors = errors(&mut stream);

        let names = picks(&mut random, 4, 0, sizes[dim]);
        let indices = put(&mut stream, kind, &[4], &[3], &names);
        let chosen = replaced(&sizes, dim, 4.0);
        let output = tensor(&mut stream, &mut random, dtype, &chosen, &[]);
        index::select(&mut stream, &input, dim, &indices, &output, errors).unwrap();
        let expected: Vec<f64> = places(&chosen)
            .iter()
            .map(|place| data[at(&sizes, &replaced(place, dim, names[place[dim] as usize]))])
            .collect();
        close(&get(&mut stream, &output), &expected, 0.0, &format!("select {what}"));

        // Fewer lines than the tensor has, and more or fewer indices in each.
        let some = replaced(&[2, 3, 2, 4], dim, random.random_range(1..9) as f64);
        let count = some.iter().product();
        let names = picks(&mut random, count, 0, sizes[dim]);
        let indices = tensor(&mut stream, &mut random, kind, &some, &names);
        let output = tensor(&mut stream, &mut random, dtype, &some, &[]);
        index::gather(&mut stream, &input, dim, &indices, &output, errors).unwrap();
        let expected: Vec<f64> = places(&some)
            .iter()
            .zip(&names)
            .map(|(place, &name)| data[at(&sizes, &replaced(place, dim, name))])
            .collect();
        close(&get(&mut stream, &output), &expected, 0.0, &format!("gather {what}"));

        // Every place at most once: the order of a line's indices.
        let mut names = vec![0.0; count as usize];
        let some = replaced(&some, dim, some[dim].min(sizes[dim]) as f64);
        for place in places(&some) {
            names[at(&some, &place)] =
                ((place[dim] * 3 + 1 + place.iter().sum::<u64>() - place[dim]) % sizes[dim]) as f64;
        }
        if sizes[dim] == 3 {
            names = places(&some).iter().map(|place| place[dim] as f64).collect();
        }
        names.truncate(some.iter().product::<u64>() as usize);
        let indices = tensor(&mut stream, &mut random, kind, &some, &names);
        let fresh = values(&mut random, dtype, names.len() as u64, 90.0);
        let source = tensor(&mut stream, &mut random, dtype, &some, &fresh);
        index::scatter(&mut stream, &input, dim, &indices, &source, errors).unwrap();
        let mut expected = data.clone();
        for ((place, &name), &v) in places(&some).iter().zip(&names).zip(&fresh) {
            expected[at(&sizes, &replaced(place, dim, name))] = v;
        }
        close(&get(&mut stream, &input), &expected, 0.0, &format!("scatter {what}"));

        let value = put_plain(&mut stream, dtype, &[], &[1.0]);
        index::scatter(&mut stream, &input, dim, &indices, &value, errors).unwrap();
        for (place, &name) in places(&some).iter().zip(&names) {
            expected[at(&sizes, &replaced(place, dim, name))] = 1.0;
        }
        close(&get(&mut stream, &input), &expected, 0.0, &format!("scatter of a value {what}"));
        assert!(!raised(&mut stream, errors), "{what}");
    }
}

#[test]
fn several_indices_broadcast_and_wrap() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let sizes = [4u64, 5, 3, 6];
    // Which dimensions have indices, and the sizes of those.
    let forms: [&[Option<&[u64]>]; 6] = [
        &[Some(&[7])],
        &[None, Some(&[2, 3])],
        &[None, Some(&[4, 1]), Some(&[3])],
        &[Some(&[3]), None, Some(&[2, 1])],
        &[Some(&[]), Some(&[5]), None, Some(&[5])],
        &[Some(&[2, 2]), Some(&[2]), Some(&[2, 1]), Some(&[])],
    ];
    for (turn, form) in forms.iter().cycle().take(18).enumerate() {
        let dtype = ElementType::ALL[turn % 10];
        let what = format!("{form:?} {dtype:?}, seed {seed}");
        let errors = errors(&mut stream);
        let mut names = Vec::new();
        let mut indices = Vec::new();
        for (dim, index) in form.iter().enumerate() {
            let Some(index) = index else {
                names.push(None);
                indices.push(None);
                continue;
            };
            let kind = [ElementType::I64, ElementType::I32][random.random_range(0..2)];
            let list = picks(&mut random, index.iter().product(), -(sizes[dim] as i64), sizes[dim]);
            indices.push(Some(tensor(&mut stream, &mut random, kind, index, &list)));
            names.push(Some((index.to_vec(), list)));
        }
        // The broadcast shape by hand: no form needs more than two dimensions.
        let rank = form.iter().flatten().map(|index| index.len()).max().unwrap();
        let mut common = vec![1; rank];
        for index in form.iter().flatten() {
            let front = rank - index.len();
            (0..index.len()).for_each(|k| common[front + k] = common[front + k].max(index[k]));
        }
        let given: Vec<usize> = (0..form.len()).filter(|&dim| form[dim].is_some()).collect();
        let together = given.windows(2).all(|pair| pair[1] == pair[0] + 1);
        let front = if together { given[0] } else { 0 };
        let whole: Vec<usize> = (0..4).filter(|dim| !given.contains(dim)).collect();
        let mut shape: Vec<u64> = whole.iter().map(|&dim| sizes[dim]).collect();
        shape.splice(front..front, common.iter().copied());
        // Where each element of the result lies in the tensor.
        let sources: Vec<usize> = places(&shape)
            .iter()
            .map(|place| {
                let named = &place[front..front + rank];
                let rest = [&place[..front], &place[front + rank..]].concat();
                let mut from = vec![0; 4];
                whole.iter().zip(&rest).for_each(|(&dim, &i)| from[dim] = i);
                for &dim in &given {
                    let (index, list) = names[dim].as_ref().unwrap();
                    let own: Vec<u64> = index
                        .iter()
                        .zip(&named[rank - index.len()..])
                        .map(|(&size, &i)| if size == 1 { 0 } else { i })
                        .collect();
                    let name = list[at(index, &own)];
                    from[dim] = (if name < 0.0 { name + sizes[dim] as f64 } else { name }) as u64;
                }
                at(&sizes, &from)
            })
            .collect();

        let data = values(&mut random, dtype, 360, 40.0);
        let input = tensor(&mut stream, &mut random, dtype, &sizes, &data);
        let output = tensor(&mut stream, &mut random, dtype, &shape, &[]);
        index::get(&mut stream, &input, &indices, &output, errors).unwrap();
        let expected: Vec<f64> = sources.iter().map(|&from| data[from]).collect();
        close(&get(&mut stream, &output), &expected, 0.0, &format!("get {what}"));

        if dtype != ElementType::Bool {
            let fresh = values(&mut random, dtype, sources.len() as u64, 3.0);
            let added = tensor(&mut stream, &mut random, dtype, &shape, &fresh);
            index::put_add(&mut stream, &input, &indices, &added, errors).unwrap();
            let mut sums = data.clone();
            sources.iter().zip(&fresh).for_each(|(&to, v)| sums[to] += v);
            let sums: Vec<f64> = sums.iter().map(|&v| rounded(dtype, v)).collect();
            let tolerance = match dtype {
                ElementType::F16 => 1e-3,
                ElementType::BF16 => 1e-2,
                dtype if dtype.is_float() => 1e-6,
                _ => 0.0,
            };
            close(&get(&mut stream, &input), &sums, tolerance, &format!("put_add {what}"));
        }
        let value = put_plain(&mut stream, dtype, &[1], &[1.0]);
        index::put(&mut stream, &input, &indices, &value, errors).unwrap();
        let mut found = get(&mut stream, &input);
        sources.iter().for_each(|&to| assert_eq!(std::mem::replace(&mut found[to], 1.0), 1.0, "put {what}"));
        assert!(!raised(&mut stream, errors), "{what}");
    }
}

#[test]
fn sums_into_rows_and_lines() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for (dtype, tolerance) in [
        (ElementType::F32, 1e-6),
        (ElementType::F16, 1e-3),
        (ElementType::BF16, 1e-2),
        (ElementType::F64, 1e-14),
        (ElementType::I64, 0.0),
        (ElementType::U8, 0.0),
    ] {
        let (sizes, dim) = ([4, 5, 2, 6], random.random_range(0..4));
        let what = format!("{dtype:?}, dim {dim}, seed {seed}");
        let data = values(&mut random, dtype, 240, 9.0);
        let output = tensor(&mut stream, &mut random, dtype, &sizes, &data);
        let errors = errors(&mut stream);

        let some = replaced(&[3, 5, 1, 4], dim, random.random_range(1..12) as f64);
        let names = picks(&mut random, some.iter().product(), 0, sizes[dim]);
        let indices = tensor(&mut stream, &mut random, ElementType::I64, &some, &names);
        let fresh = values(&mut random, dtype, names.len() as u64, 3.0);
        let source = tensor(&mut stream, &mut random, dtype, &some, &fresh);
        index::scatter_add(&mut stream, &output, dim, &indices, &source, errors).unwrap();
        let mut sums = data.clone();
        for ((place, &name), v) in places(&some).iter().zip(&names).zip(&fresh) {
            sums[at(&sizes, &replaced(place, dim, name))] += v;
        }
        let wrapped: Vec<f64> = sums.iter().map(|&v| rounded(dtype, v)).collect();
        close(&get(&mut stream, &output), &wrapped, tolerance, &format!("scatter_add {what}"));

        let names = picks(&mut random, 9, 0, sizes[dim]);
        let indices = put(&mut stream, ElementType::I32, &[9], &[2], &names);
        let chosen = replaced(&sizes, dim, 9.0);
        let fresh = values(&mut random, dtype, chosen.iter().product(), 3.0);
        let source = tensor(&mut stream, &mut random, dtype, &chosen, &fresh);
        let mut sums = get(&mut stream, &output);
        index::add(&mut stream, &output, dim, &indices, &source, Some(2), errors).unwrap();
        for (place, v) in places(&chosen).iter().zip(&fresh) {
            let name = names[place[dim] as usize];
            if name != 2.0 {
                sums[at(&sizes, &replaced(place, dim, name))] += v;
            }
        }
        let wrapped: Vec<f64> = sums.iter().map(|&v| rounded(dtype, v)).collect();
        close(&get(&mut stream, &output), &wrapped, tolerance, &format!("add {what}"));
        assert!(!raised(&mut stream, errors), "{what}");
    }
}

#[test]
fn masks() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for dtype in ElementType::ALL {
        let data = values(&mut random, dtype, 105, 90.0);
        let output = tensor(&mut stream, &mut random, dtype, &[3, 5, 7], &data);
        let kind = [ElementType::Bool, ElementType::U8][random.random_range(0..2)];
        let marks: Vec<f64> = (0..15).map(|_| f64::from(random.random_bool(0.5))).collect();
        let mask = tensor(&mut stream, &mut random, kind, &[3, 5, 1], &marks);
        let value = put_plain(&mut stream, dtype, &[], &[1.0]);
        let errors = errors(&mut stream);
        index::masked_fill(&mut stream, &output, &mask, &value, errors).unwrap();
        let expected: Vec<f64> =
            data.iter().enumerate().map(|(i, &v)| if marks[i / 7] == 1.0 { 1.0 } else { v }).collect();
        close(&get(&mut stream, &output), &expected, 0.0, &format!("{dtype:?}, seed {seed}"));
        assert!(!raised(&mut stream, errors));
    }
}

#[test]
fn places_that_are_not_zero() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for dtype in ElementType::ALL {
        let sizes = [[3, 5, 41], [1, 1, 64], [7, 1, 1]][random.random_range(0..3)];
        let mut data = values(&mut random, dtype, sizes.iter().product(), 3.0);
        data.iter_mut().for_each(|v| {
            if random.random_bool(0.5) {
                *v = if dtype.is_float() && random.random_bool(0.5) { -0.0 } else { 0.0 };
            }
        });
        if dtype.is_float() {
            data[0] = f64::NAN;
        }
        let input = put_plain(&mut stream, dtype, &sizes, &data);
        let chunks = index::nonzero_counts(data.len() as u64);
        let counts = room(&mut stream, ElementType::I32, &[chunks]);
        index::count_nonzero(&mut stream, &input, &counts).unwrap();
        let found = get(&mut stream, &counts);
        let expected: Vec<f64> =
            data.chunks(64).map(|some| some.iter().filter(|&&v| v != 0.0).count() as f64).collect();
        close(&found, &expected, 0.0, &format!("{dtype:?}, seed {seed}"));
        let starts: Vec<f64> = (0..found.len()).map(|i| found[..i].iter().sum()).collect();
        let starts = put_plain(&mut stream, ElementType::I32, &[chunks], &starts);
        let output = room(&mut stream, ElementType::I64, &[found.iter().sum::<f64>() as u64, 3]);
        index::nonzero(&mut stream, &input, &starts, &output).unwrap();
        let expected = places(&sizes).into_iter().zip(&data).filter(|&(_, &v)| v != 0.0);
        let expected: Vec<f64> = expected.flat_map(|(place, _)| place).map(|i| i as f64).collect();
        close(&get(&mut stream, &output), &expected, 0.0, &format!("{dtype:?}, seed {seed}"));
    }
}

#[test]
fn many_sources_are_summed_in_order_and_alike_every_time() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    // More sources than are ranked at a time, more elements than are compared one by one.
    let (rows, count) = (4500u64, 9001u64);
    let errors = errors(&mut stream);
    let names = picks(&mut random, count, 0, rows);
    let indices = put_plain(&mut stream, ElementType::I64, &[count], &names);
    let fresh = values(&mut random, ElementType::F32, count, 3.0);
    let source = put_plain(&mut stream, ElementType::F32, &[count], &fresh);
    // f32 in the order of the sources: not a rounding away from it.
    let mut expected = vec![0f32; rows as usize];
    names.iter().zip(&fresh).for_each(|(&name, &v)| expected[name as usize] += v as f32);
    let expected: Vec<f64> = expected.iter().map(|&v| v.into()).collect();
    let zeros = vec![0.0; rows as usize];
    for what in ["scatter_add", "add", "put_add"] {
        let output = put_plain(&mut stream, ElementType::F32, &[rows], &zeros);
        match what {
            "scatter_add" => index::scatter_add(&mut stream, &output, 0, &indices, &source, errors),
            "add" => index::add(&mut stream, &output, 0, &indices, &source, None, errors),
            _ => index::put_add(&mut stream, &output, &[Some(indices)], &source, errors),
        }
        .unwrap();
        close(&get(&mut stream, &output), &expected, 0.0, &format!("{what}, seed {seed}"));
    }
    assert!(!raised(&mut stream, errors));
}

#[test]
fn bad_indices_raise_the_flag_and_touch_nothing() {
    let Some(mut stream) = stream() else { return };
    for bad in [-9.0, 4.0, 1e15, -1e15] {
        let data = [1.0, 2.0, 3.0, 4.0];
        let indices = put_plain(&mut stream, ElementType::I64, &[2], &[1.0, bad]);
        let source = put_plain(&mut stream, ElementType::F32, &[2], &[7.0, 8.0]);
        for what in 0..7 {
            let input = put_plain(&mut stream, ElementType::F32, &[4], &data);
            let output = room(&mut stream, ElementType::F32, &[2]);
            let errors = errors(&mut stream);
            let some = [Some(indices)];
            let (expected, read) = match what {
                0 => (index::select(&mut stream, &input, 0, &indices, &output, errors), true),
                1 => (index::gather(&mut stream, &input, 0, &indices, &output, errors), true),
                2 => (index::get(&mut stream, &input, &some, &output, errors), true),
                3 => (index::scatter(&mut stream, &input, 0, &indices, &source, errors), false),
                4 => (index::scatter_add(&mut stream, &input, 0, &indices, &source, errors), false),
                5 => (index::add(&mut stream, &input, 0, &indices, &source, None, errors), false),
                _ => (index::put(&mut stream, &input, &some, &source, errors), false),
            };
            expected.unwrap();
            let what = format!("operation {what} at {bad}");
            assert!(raised(&mut stream, errors), "{what}");
            if read {
                close(&get(&mut stream, &output), &[2.0, 0.0], 0.0, &what);
            } else {
                let second = if what.contains(" 4 ") || what.contains(" 5 ") { 9.0 } else { 7.0 };
                close(&get(&mut stream, &input), &[1.0, second, 3.0, 4.0], 0.0, &what);
            }
        }
    }
}
