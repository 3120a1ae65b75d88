use super::*;
use crate::schema::{
    Absent, Bench, BenchRow, Check, Failure, Group, KernelLog, LogLine, Machine, Part, SCHEMA, Sensors,
};
use wave32_verify::bench::{Row, Times};
use wave32_verify::protocol::Verdict;

/// A report in which everything occurs.
pub fn sample() -> Report {
    let row = |direction: &str, label: &str| Row {
        label: label.into(),
        line: "MIOpenDriver conv -n 1 -c 8 -H 9 -W 9 -k 8 -y 3 -x 3 -F 1".into(),
        direction: direction.into(),
        dtype: "f32".into(),
        solver: "igemm".into(),
        config: "64x64".into(),
        chosen: true,
        tuned: false,
        workspace_bytes: 0,
        flops: 1_000_000,
        bytes: 1000,
        time: Some(Times { median_ms: 0.5, min_ms: 0.4, max_ms: 0.9, runs: 9, back_to_back_ms: None }),
        floor_ms: Some(0.1),
        error: None,
    };
    let timed = |direction, label| BenchRow { row: row(direction, label), model_ms: Some(0.4) };
    let lost = Row { time: None, error: Some("DEVICE_LOST: <b>".into()), ..row("wrw", "lost") };
    let reading = |at_s, c| Reading {
        at_s,
        during: "bench".into(),
        edge_c: Some(c),
        shader_mhz: Some(1750.0),
        ..Reading::default()
    };
    Report {
        schema: SCHEMA,
        wave32: "0".into(),
        unix_time: 1_795_478_400,
        seconds: 12.0,
        limit_s: 300.0,
        interrupted: false,
        machine: Machine { system: Some("A & B".into()), processor: "P".into(), ..Machine::default() },
        parts: vec![Part {
            name: "verify vulkan:0".into(),
            state: State::Hung,
            seconds: 3.0,
            note: Some("HANG <x>".into()),
        }],
        devices: vec![Device {
            id: "vulkan:0".into(),
            name: "Card <script>alert(1)</script>".into(),
            driver: "radv Mesa 25.2.4".into(),
            mesa: Some("25.2.4".into()),
            kind: wave32_device::DeviceKind::Discrete,
            class: Class::Card,
            memory_bytes: 6 << 30,
            unusable: Some("\"quoted\"".into()),
            caps: Some(wave32_solve::DeviceCaps::of(wave32_solve::usual_boards()[0])),
        }],
        absent: vec![Absent { route: "rocm".into(), why: "<none>".into() }],
        checks: vec![Check {
            device: "vulkan:0".into(),
            selection: "seeds".into(),
            problems: 3,
            not_run: 1,
            scaled_to_gflop: Some(2.0),
            seed: 7,
            seconds: 3.0,
            groups: vec![Group {
                dtype: "f32".into(),
                direction: "fwd".into(),
                passed: 1,
                failed: 1,
                unsupported: 0,
                worst_error: Some(1e-7),
                allowed: Some(1.5e-6),
            }],
            failures: vec![Failure {
                verdict: Verdict::Hang,
                label: "l & l".into(),
                line: "MIOpenDriver conv".into(),
                detail: "no answer".into(),
                repro: Some("wave32 verify 'x'".into()),
            }],
        }],
        benches: vec![Bench {
            device: "vulkan:0".into(),
            clock: "device timestamps".into(),
            rates: None,
            problems: 4,
            not_run: 1,
            too_large: vec!["big".into()],
            rows: vec![timed("fwd", "a<b"), timed("bwd", "c"), BenchRow { row: lost, model_ms: None }],
        }],
        sensors: Sensors {
            cards: vec![CardReadings {
                address: "0000:03:00.0".into(),
                driver: "amdgpu".into(),
                readings: vec![reading(0.0, 40.0), reading(9.0, 71.0)],
            }],
            note: None,
        },
        kernel_log: KernelLog {
            source: Some("/dev/kmsg".into()),
            lines: vec![LogLine { text: "amdgpu <ring> timeout".into(), new: true }],
            left_out: 0,
            note: None,
        },
        doctor: serde_json::json!({"verdicts": [{"route": "vulkan", "state": "ready", "because": "<i>"}], "findings": []}),
    }
}

#[test]
fn the_page_is_self_contained_and_escaped() {
    let page = page(&sample());
    for hostile in ["<script", "<b>.", "a<b", "<x>", "<none>", "<ring>", "<i>\"", "A & B", "l & l"] {
        assert!(!page.contains(hostile), "{hostile}");
    }
    for outside in ["http://", "https://", "src=", "@import", "url(", "javascript:", " on"] {
        let found = page.match_indices(outside).any(|(at, _)| {
            outside != " on"
                || page[at + 3..].starts_with(|c: char| c.is_ascii_lowercase())
                    && page[at..].split(['>', ' ']).nth(1).is_some_and(|w| w.contains('='))
        });
        assert!(!found, "the page refers to the outside: {outside}");
    }
    for wanted in [
        "NOT ALL RIGHT",
        "&lt;script&gt;",
        "HANG",
        "71",
        "1750 MHz",
        "2026-11-24",
        "0.80 of the modelled speed",
        "</html>",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
}

#[test]
fn a_report_is_read_back_as_it_was_written() {
    let report = sample();
    let value = serde_json::to_value(&report).unwrap();
    assert_eq!(serde_json::from_value::<Report>(value).unwrap(), report);
}

/// The schema that others read names every field that there is, and no other.
#[test]
fn the_schema_file_has_every_field() {
    let text = include_str!("../../../../reports/schema.json");
    let schema: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(schema["properties"]["schema"]["const"], SCHEMA);
    fits(&serde_json::to_value(sample()).unwrap(), &schema, &schema, "");
}

fn fits(value: &serde_json::Value, part: &serde_json::Value, whole: &serde_json::Value, at: &str) {
    let part = match part["$ref"].as_str() {
        Some(name) => &whole["$defs"][name.trim_start_matches("#/$defs/")],
        None => part,
    };
    match value {
        serde_json::Value::Object(fields) if part.get("properties").is_some() => {
            let named: Vec<&String> = part["properties"].as_object().unwrap().keys().collect();
            let mut here: Vec<&String> = fields.keys().collect();
            here.sort();
            let mut sorted = named.clone();
            sorted.sort();
            assert_eq!(here, sorted, "fields at {at}/");
            assert_eq!(part["additionalProperties"], false, "{at}/");
            for (name, field) in fields {
                fits(field, &part["properties"][name], whole, &format!("{at}/{name}"));
            }
        }
        serde_json::Value::Array(items) => {
            items.iter().for_each(|item| fits(item, &part["items"], whole, at))
        }
        _ => assert!(part.is_object(), "{at}: not in the schema"),
    }
}
