//! Undefined values on their way through LDS: no mistake until they matter, lane by lane and dword by dword.

use crate::common;

use common::{compile, have, program::Program};
use wave32_exec::{Finding, Location, Stop};

/// Two waves of 32 lanes.
const GROUP: u16 = 64;

/// What each body of a kernel of one workgroup does under the strict card: `out` afterwards, or a finding. It has `t`,
/// the work-item's number, `s`, LDS of 1024 dwords, `at`, the address of `s[4 * t]` in bytes, and `o`, that of `out[t]`.
/// `UNDEFINED` in it is v60, which nothing writes.
fn run_all(bodies: &[String], flags: &[&str]) -> Vec<Result<Vec<u32>, (Location, Finding)>> {
    let barrier = "__builtin_amdgcn_fence(__ATOMIC_RELEASE, \"workgroup\"); __builtin_amdgcn_s_barrier();
                   __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"workgroup\");";
    let kernel = |(i, body): (usize, &String)| {
        format!(
            "extern \"C\" __global__ void k{i}(uint *out) {{ __shared__ volatile uint s[1024];
             uint t = tid, at = 16 * t; uint *o = out + t; asm volatile(\"\" :: \"v\"(s) : \"v60\"); {} }}\n",
            body.replace("BARRIER", barrier).replace("UNDEFINED", "v60")
        )
    };
    let kernels: String = bodies.iter().enumerate().map(kernel).collect();
    let source = format!("typedef unsigned long long u64;\n{kernels}");
    let elf = compile(&source, &[&["-O1"], flags].concat());
    let one = |i: usize| {
        let mut p = Program::new(&elf, 1);
        p.options.strict = true;
        let out = p.memory.alloc_words(&[7; 256]);
        match p.run(&format!("k{i}"), [GROUP.into(), 1, 1], [GROUP, 1, 1], &[out]) {
            Ok(_) => Ok(p.memory.load_words(out, GROUP.into())),
            Err(Stop::Strict { place, finding }) => Err((place, finding)),
            Err(stop) => panic!("{}: {stop}", bodies[i]),
        }
    };
    (0..bodies.len()).map(one).collect()
}

fn run_as(body: &str, flags: &[&str]) -> Result<Vec<u32>, (Location, Finding)> {
    run_all(&[body.into()], flags).remove(0)
}

fn run(body: &str) -> Result<Vec<u32>, (Location, Finding)> {
    run_as(body, &[])
}

/// Assembly, with a wait behind each line. `%0` is `at`, `%1` is `o`, `%2` is `x`, where there is one.
fn lines(lines: &[&str], x: &str) -> String {
    let text: String =
        lines.iter().map(|line| format!("{line}\\ns_waitcnt vmcnt(0) lgkmcnt(0)\\n")).collect();
    let registers = (40..50).map(|v| format!("\"v{v}\"")).collect::<Vec<_>>().join(", ");
    format!(
        "asm volatile(\"{text}\" :: \"v\"(at), \"v\"(o), \"v\"({x}) : \"memory\", {registers}, \"v60\", \"v61\", \"s50\", \"scc\");"
    )
}

const STORE: &str = "global_store_dword %1, v40, off";

/// The lane, the register and the LDS address of a finding at a store to memory.
fn stored(result: Result<Vec<u32>, (Location, Finding)>, what: &str) -> (Option<u32>, u32, Option<u32>) {
    match result {
        Err((place, Finding::UninitialisedVgpr { register, lds }))
            if place.instruction.starts_with("global_store") =>
        {
            (place.lane, register, lds)
        }
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn a_halo_that_nobody_looks_at() {
    if !have(&["clang-19"]) {
        return;
    }
    let body =
        |lanes: u32| format!("if (t < 32) s[t] = t; BARRIER uint v = s[t]; if (t < {lanes}) out[t] = v;");
    for flags in [&["-O1"][..], &["-O3"], &["-O3", "-mwavefrontsize64"]] {
        let out = run_as(&body(32), flags).unwrap_or_else(|(place, finding)| panic!("{place}: {finding}"));
        let want: Vec<u32> = (0..64).map(|t| if t < 32 { t } else { 7 }).collect();
        assert_eq!(out, want, "{flags:?}");
        let (lane, _, lds) = stored(run_as(&body(64), flags), "a halo stored");
        let first = if flags.len() == 2 { 32 } else { 0 };
        assert_eq!((lane, lds), (Some(first), Some(128)), "{flags:?}");
    }
    let (place, finding) = run(&body(64)).expect_err("a halo stored");
    assert_eq!(place.wave, 1);
    let text = finding.to_string();
    assert!(text.contains("the lane loaded LDS 0x80, which nothing had written"), "{text}");
    // Chosen away, and summed up.
    let chosen =
        |from: u32| format!("if (t < 32) s[t] = t; BARRIER uint v = s[t] + 1; out[t] = t < {from} ? v : 5;");
    run(&chosen(32)).expect("chosen away");
    stored(run(&chosen(40)), "not chosen away");
}

#[test]
fn each_dword_of_a_load() {
    if !have(&["clang-19"]) {
        return;
    }
    // Dwords from `at` on.
    let loads: [(&str, &[u32]); 9] = [
        ("ds_read_b32 v40, %0", &[0]),
        ("ds_read_b64 v[40:41], %0", &[0, 1]),
        ("ds_read_b96 v[40:42], %0", &[0, 1, 2]),
        ("ds_read_b128 v[40:43], %0", &[0, 1, 2, 3]),
        ("ds_read2_b32 v[40:41], %0 offset0:3 offset1:1", &[3, 1]),
        ("ds_read2st64_b32 v[40:41], %0 offset1:6", &[0, 384]),
        ("ds_read2_b64 v[40:43], %0 offset1:1", &[0, 1, 2, 3]),
        ("ds_read2st64_b64 v[40:43], %0 offset1:3", &[0, 1, 384, 385]),
        ("flat_load_dwordx4 v[40:43], %2", &[0, 1, 2, 3]),
    ];
    let mut cases = Vec::new();
    for (load, dwords) in loads {
        for missing in 0..dwords.len() {
            cases.extend((0..dwords.len()).map(|looked_at| (load, dwords, missing, looked_at)));
        }
    }
    let body = |&(load, dwords, missing, looked_at): &(&str, &[u32], usize, usize)| {
        let gone = dwords[missing];
        let write = |d: &u32| format!("if (t != 37 || {d} != {gone}) s[4 * t + {d}] = t + {d};");
        let writes: String = dwords.iter().map(write).collect();
        let store = format!("global_store_dword %1, v{}, off", 40 + looked_at);
        format!("{writes} {}", lines(&[load, &store], "(u64)(s + 4 * t)"))
    };
    let bodies: Vec<String> = cases.iter().map(body).collect();
    for ((load, dwords, missing, looked_at), result) in cases.into_iter().zip(run_all(&bodies, &[])) {
        let what = format!("{load} without {}, {looked_at} looked at", dwords[missing]);
        if missing == looked_at {
            let address = (4 * 37 + dwords[missing]) * 4;
            assert_eq!(stored(result, &what), (Some(5), 40 + missing as u32, Some(address)));
        } else {
            let want: Vec<u32> = (0..64).map(|t| t + dwords[looked_at]).collect();
            assert_eq!(result, Ok(want), "{what}");
        }
    }
}

#[test]
fn parts_of_a_register() {
    if !have(&["clang-19"]) {
        return;
    }
    // Bytes 0 and 3 of each dword are written.
    let bytes = "((volatile unsigned char *)s)[16 * t] = t; ((volatile unsigned char *)s)[16 * t + 3] = t;";
    let wrong = |load: &[&str]| {
        let what = load.join("; ");
        let all = [load, &[STORE]].concat();
        let found = stored(run(&format!("{bytes} {}", lines(&all, "t"))), &what);
        assert_eq!((found.0, found.1), (Some(0), 40), "{what}");
    };
    let right = |load: &[&str]| {
        let all = [load, &[STORE]].concat();
        let result = run(&format!("{bytes} {}", lines(&all, "t")));
        assert!(result.is_ok(), "{}: {result:?}", load.join("; "));
    };
    right(&["ds_read_u8 v40, %0"]);
    right(&["ds_read_i8 v40, %0 offset:3"]);
    wrong(&["ds_read_u8 v40, %0 offset:1"]);
    wrong(&["ds_read_i8 v40, %0 offset:2"]);
    wrong(&["ds_read_u16 v40, %0"]);
    wrong(&["ds_read_i16 v40, %0 offset:2"]);
    wrong(&["ds_read_b32 v40, %0"]);
    // A half beside a defined one counts as defined; two undefined ones do not.
    right(&["v_mov_b32 v40, 0", "ds_read_u16_d16 v40, %0"]);
    right(&["v_mov_b32 v40, 0", "ds_read_u8_d16_hi v40, %0 offset:1"]);
    right(&["ds_read_u8_d16 v40, %0"]);
    wrong(&["ds_read_u16_d16 v40, %0", "ds_read_u16_d16_hi v40, %0 offset:2"]);
    wrong(&["ds_read_b32 v40, %0", "ds_read_i8_d16 v40, %0 offset:1"]);
    right(&["ds_read_b32 v40, %0", "ds_read_i8_d16 v40, %0 offset:3"]);
}

#[test]
fn undefined_values_stored() {
    if !have(&["clang-19"]) {
        return;
    }
    let read = ["ds_read_b32 v40, %0", STORE];
    let written = "for (uint d = 0; d < 4; d++) s[4 * t + d] = t;";
    let after = |stores: &[&str]| {
        (stores.join("; "), run(&format!("{written} {}", lines(&[stores, &read].concat(), "t"))))
    };
    let wrong = |stores: &[&str]| {
        let (what, result) = after(stores);
        assert_eq!((stored(result, &what)), (Some(0), 40, Some(0)), "{what}");
    };
    let right = |stores: &[&str]| {
        let (what, result) = after(stores);
        assert_eq!(result.expect(&what), (0..64).collect::<Vec<u32>>(), "{what}");
    };
    right(&[]);
    wrong(&["ds_write_b32 %0, UNDEFINED"]);
    right(&["ds_write_b32 %0, UNDEFINED", "ds_write_b32 %0, %2"]);
    right(&["ds_write_b32 %0, UNDEFINED offset:4"]);
    // One dword of several.
    let mixed = |undefined: usize, store: &'static str| -> Vec<&'static str> {
        let moves = ["v_mov_b32 v44, %2", "v_mov_b32 v45, %2", "v_mov_b32 v46, %2", "v_mov_b32 v47, %2"];
        let mut all: Vec<_> =
            moves.into_iter().enumerate().filter(|(i, _)| *i != undefined).map(|(_, m)| m).collect();
        all.push(store);
        all
    };
    for (store, first) in [
        ("ds_write_b64 %0, v[44:45]", 0),
        ("ds_write_b96 %0, v[44:46]", 0),
        ("ds_write_b128 %0, v[44:47]", 0),
        ("ds_write2_b32 %0, v44, v45 offset0:1 offset1:0", 1),
        ("ds_write2_b64 %0, v[44:45], v[46:47] offset0:1 offset1:0", 2),
    ] {
        for undefined in 0..4 {
            let all = mixed(undefined, store);
            if undefined == first { wrong(&all) } else { right(&all) }
        }
    }
    // A byte of the dword; the others stay.
    wrong(&["ds_write_b8 %0, UNDEFINED"]);
    let (what, result) = after(&["ds_write_b8 %0, UNDEFINED offset:1", "ds_write_b8 %0, %2"]);
    stored(result, &what);
    right(&["ds_write_b16 %0, UNDEFINED", "ds_write_b16 %0, %2"]);
    // Copied on.
    let copy =
        ["ds_write_b32 %0, UNDEFINED offset:4", "ds_read_b32 v41, %0 offset:4", "ds_write_b32 %0, v41"];
    let (what, result) = after(&copy);
    stored(result, &what);
    // By FLAT.
    let flat = |register: &str| {
        let store = format!("flat_store_dword %2, {register}");
        run(&format!("{written} {}", lines(&[&[&*store], &read[..]].concat(), "(u64)(s + 4 * t)")))
    };
    stored(flat("UNDEFINED"), "flat");
    flat("%0").expect("flat, defined");
    // FLAT into memory.
    let store = lines(&["flat_store_dword %1, UNDEFINED"], "t");
    let (place, finding) = run(&store).expect_err("into memory");
    assert!(matches!(finding, Finding::UninitialisedVgpr { register: 60, lds: None }), "{finding:?}");
    assert!(place.instruction.starts_with("flat_store_dword"), "{place}");
}

/// Lanes that store to the same place: the highest one's value stays.
#[test]
fn lanes_that_meet() {
    if !have(&["clang-19"]) {
        return;
    }
    let body = |defined: &str| {
        format!(
            "at = 4 * (t / 32); if ({defined}) asm volatile(\"v_mov_b32 v60, 3\" ::: \"v60\"); {}",
            lines(&["ds_write_b32 %0, UNDEFINED", "ds_read_b32 v40, %0", STORE], "t")
        )
    };
    assert_eq!(run(&body("t % 32 > 30")), Ok(vec![3; 64]));
    let (lane, register, _) = stored(run(&body("t % 32 < 31")), "the last one undefined");
    assert_eq!((lane, register), (Some(0), 40));
}

#[test]
fn where_it_matters() {
    if !have(&["clang-19"]) {
        return;
    }
    let finding = |all: &[&str]| run(&lines(all, "t")).expect_err(all[all.len() - 1]);
    // An address, of LDS and of memory.
    for access in ["ds_read_b32 v41, v40", "ds_write_b32 v40, %2", "ds_add_u32 v40, %2"] {
        let (place, finding) = finding(&["ds_read_b32 v40, %0", access]);
        assert_eq!(finding, Finding::UninitialisedVgpr { register: 40, lds: Some(0) }, "{access}");
        assert_eq!(place.lane, Some(0));
    }
    // A branch.
    let branch = [
        "ds_read_b32 v40, %0",
        "v_readfirstlane_b32 s50, v40",
        "s_cmp_eq_u32 s50, 0",
        "s_cbranch_scc1 1f\\n1:",
    ];
    let (place, branched) = finding(&branch);
    assert!(matches!(branched, Finding::UninitialisedSgpr { .. }), "{branched:?}");
    assert_eq!(place.instruction.split(' ').next(), Some("s_cbranch_scc1"));
    // Atomics: what they find, and what they add.
    for atomic in [
        "ds_add_u32 %0, %2",
        "ds_add_rtn_u32 v40, %0, %2",
        "ds_wrxchg_rtn_b32 v40, %0, %2",
        "ds_or_b64 %0, v[44:45]",
    ] {
        let defined = ["v_mov_b32 v44, 0", "v_mov_b32 v45, 0", atomic];
        let (_, found) = finding(&defined);
        assert_eq!(found, Finding::UninitialisedLds { address: 0 }, "{atomic}");
        let body = format!("s[4 * t] = t; s[4 * t + 1] = t; {}", lines(&defined, "t"));
        run(&body).expect(atomic);
        // What had been defined, no longer is.
        let store = format!(
            "s[4 * t] = t; s[4 * t + 1] = t; {}",
            lines(&[&["ds_write_b32 %0, UNDEFINED"], &defined[..]].concat(), "t")
        );
        assert!(matches!(run(&store), Err((_, Finding::UninitialisedLds { address: 0 }))), "{atomic}");
    }
    let body = format!("s[4 * t] = t; {}", lines(&["ds_add_u32 %0, UNDEFINED"], "t"));
    let (_, found) = run(&body).expect_err("an undefined summand");
    assert_eq!(found, Finding::UninitialisedVgpr { register: 60, lds: None });
}

/// Who races with whom does not depend on what is stored.
#[test]
fn races_of_undefined_values() {
    if !have(&["clang-19"]) {
        return;
    }
    let race = |result: Result<Vec<u32>, (Location, Finding)>| match result {
        Err((place, Finding::LdsRace { address: 0, other_wave: 0 })) => assert_eq!(place.wave, 1),
        other => panic!("{other:?}"),
    };
    let first = |what: &str| format!("if (t == 0) {}", lines(&[what], "t"));
    let second = |what: &str| format!("at = 0; if (t == 32) {}", lines(&[what], "t"));
    for undefined in ["ds_write_b32 %0, UNDEFINED", "ds_read_b32 v40, %0"] {
        for other in ["ds_write_b32 %0, UNDEFINED", "ds_write_b32 %0, %2"] {
            race(run(&format!("{} {}", first(undefined), second(other))));
            run(&format!("{} BARRIER {}", first(undefined), second(other))).expect("a barrier between");
        }
    }
    race(run(&format!("{} {}", first("ds_write_b32 %0, UNDEFINED"), second("ds_read_b32 v40, %0"))));
    // Nobody writes.
    run(&format!("{} {}", first("ds_read_b32 v40, %0"), second("ds_read_b32 v40, %0"))).expect("two readers");
    // Beyond the end.
    let beyond = run(&lines(&["v_mov_b32 v44, 0x1000", "ds_write_b32 v44, UNDEFINED"], "t"));
    assert!(matches!(beyond, Err((_, Finding::LdsOutOfBounds { address: 0x1000, bytes: 4 }))), "{beyond:?}");
}

#[test]
fn what_keeps_going_tells_each_finding_and_computes_as_a_card() {
    if !have(&["clang-19"]) {
        return;
    }
    let run = |body: &str| {
        let source = format!(
            "extern \"C\" __global__ void k(uint *out) {{ __shared__ volatile uint s[1024]; uint t = tid; uint *o = out + t;
             asm volatile(\"\" :: \"v\"(s) : \"v60\"); {body} o[0] = t + 5; }}\n"
        );
        let mut p = Program::new(&compile(&source, &["-O1"]), 1);
        (p.options.strict, p.options.keep_going) = (true, true);
        let out = p.memory.alloc_words(&[7; 1024]);
        // Eight workgroups with the same findings, and the same results.
        let report = p.run("k", [8 * u32::from(GROUP), 1, 1], [GROUP, 1, 1], &[out]);
        (report, p.memory.load_words(out, GROUP.into()))
    };
    let body = "asm volatile(\"global_store_dword %0, v60, off\\ns_waitcnt_vscnt null, 0x0\" :: \"v\"(o) : \"memory\"); s[0] = t;";
    let (report, out) = run(body);
    let findings = report.expect("it goes on").findings;
    let of = |wanted: fn(&Finding) -> bool| {
        findings.iter().filter(|stop| matches!(stop, Stop::Strict { finding, .. } if wanted(finding))).count()
    };
    assert_eq!(
        of(|finding| matches!(finding, Finding::UninitialisedVgpr { register: 60, .. })),
        1,
        "{findings:?}"
    );
    assert_eq!(of(|finding| matches!(finding, Finding::LdsRace { .. })), 1, "{findings:?}");
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(out.iter().enumerate().all(|(i, &word)| word == i as u32 + 5), "{out:?}");
    // Some lanes of an atomic may be done.
    let (stopped, _) = run(
        "__hip_atomic_fetch_add(&((uint *)s)[t & 3], 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);",
    );
    let stop = stopped.expect_err("it stops");
    assert!(matches!(stop, Stop::Strict { finding: Finding::UninitialisedLds { .. }, .. }), "{stop}");
}
