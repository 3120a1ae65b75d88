//! Names, home folders, serials and addresses taken out of every string: known ones of this machine wherever they occur,
//! and whatever looks like one.

use regex::{Captures, Regex};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use wave32_cards::sysfs::{Files, PCI};

/// Names that say nothing of a person or a machine, and the words that a report itself is made of.
const COMMON: &[&str] = &[
    "root",
    "user",
    "admin",
    "administrator",
    "test",
    "guest",
    "nobody",
    "ubuntu",
    "debian",
    "fedora",
    "arch",
    "archlinux",
    "linux",
    "localhost",
    "localdomain",
    "home",
    "none",
    "unknown",
    "default",
    "string",
    "to be filled by o.e.m.",
    "not specified",
    "system serial number",
    "default string",
    "amd",
    "radeon",
    "nvidia",
    "intel",
    "mesa",
    "radv",
    "llvmpipe",
    "vulkan",
    "hip",
    "rocm",
    "miopen",
    "cpu",
    "gpu",
    "wave",
    "wave32",
    "amdgpu",
    "kernel",
    "video",
    "render",
    "pass",
    "wrong",
    "crash",
    "hang",
    "error",
    "unsupported",
    "done",
    "cut",
    "stopped",
    "hung",
    "failed",
    "skipped",
    "card",
    "processor",
    "discrete",
    "integrated",
    "virtual",
    "other",
    "ready",
    "risky",
    "absent",
    "broken",
    "verify",
    "bench",
    "doctor",
    "devices",
    "report",
    "fwd",
    "bwd",
    "wrw",
    "f32",
    "f16",
    "bf16",
    "true",
    "false",
    "null",
    "torch",
    "python",
    "path",
    "line",
    "file",
    "driver",
    "memory",
    "new",
    "before",
    "after",
];

/// Variables that hold names.
const USER: &[&str] = &["USER", "LOGNAME", "USERNAME", "SUDO_USER", "DOAS_USER", "PKEXEC_USER"];
const HOST: &[&str] = &["HOSTNAME", "HOST", "COMPUTERNAME", "NAME"];
const HOME: &[&str] = &["HOME", "USERPROFILE", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"];

/// Files of one line that hold a serial or an id.
const SERIALS: &[&str] = &[
    "/etc/machine-id",
    "/var/lib/dbus/machine-id",
    "/proc/sys/kernel/random/boot_id",
    "/sys/class/dmi/id/product_serial",
    "/sys/class/dmi/id/product_uuid",
    "/sys/class/dmi/id/board_serial",
    "/sys/class/dmi/id/chassis_serial",
    "/sys/class/dmi/id/board_asset_tag",
    "/sys/class/dmi/id/chassis_asset_tag",
    "/sys/class/dmi/id/product_asset_tag",
];

/// Shorter ones occur in other words.
const SHORTEST: usize = 2;
const SHORTEST_SERIAL: usize = 4;

/// What must not be told of this machine.
pub struct Redaction {
    /// What to look for, small letters, and what stands in its place; the longest first.
    terms: Vec<(String, &'static str)>,
    home: Regex,
    patterns: Vec<(Regex, &'static str)>,
    networks: Regex,
}

impl Redaction {
    /// Of a machine, from its files and from the variables of processes on it.
    pub fn of(files: &impl Files, environments: &[&BTreeMap<String, String>]) -> Self {
        let mut terms: BTreeSet<(String, &'static str)> = BTreeSet::new();
        let mut homes: BTreeSet<String> = BTreeSet::new();
        let mut add = |text: &str, label: &'static str| {
            let text = text.trim().to_lowercase();
            let least = if label == "[serial]" { SHORTEST_SERIAL } else { SHORTEST };
            let says_nothing = text.chars().all(|c| matches!(c, '0' | '-' | ':' | ' ' | '.'));
            if text.chars().count() >= least && !COMMON.contains(&text.as_str()) && !says_nothing {
                terms.insert((text, label));
            }
        };
        for env in environments {
            let values = |names: &'static [&str]| names.iter().filter_map(|name| env.get(*name));
            values(USER).for_each(|name| add(name, "[user]"));
            values(HOST).for_each(|name| host(name, &mut add));
            homes.extend(values(HOME).cloned());
        }
        for path in ["/etc/hostname", "/proc/sys/kernel/hostname"] {
            files.attribute(path).iter().for_each(|name| host(name, &mut add));
        }
        for line in files.text("/etc/passwd").unwrap_or_default().lines() {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, uid, _, full, home, ..] = fields[..] else { continue };
            // People, and not the system's own accounts.
            if !uid.parse().is_ok_and(|uid: u32| (1000..60000).contains(&uid)) {
                continue;
            }
            add(name, "[user]");
            let full = full.split(',').next().unwrap_or_default();
            add(full, "[user]");
            full.split_whitespace()
                .filter(|part| part.chars().count() > 3)
                .for_each(|part| add(part, "[user]"));
            homes.insert(home.to_string());
        }
        SERIALS.iter().filter_map(|path| files.attribute(path)).for_each(|text| add(&text, "[serial]"));
        for address in files.names(PCI) {
            for name in ["serial_number", "unique_id", "product_number"] {
                files
                    .attribute(&format!("{PCI}/{address}/{name}"))
                    .iter()
                    .for_each(|text| add(text, "[serial]"));
            }
        }
        for name in files.names("/sys/class/net") {
            files
                .attribute(&format!("/sys/class/net/{name}/address"))
                .iter()
                .for_each(|text| add(text, "[mac]"));
        }
        let mut terms: Vec<_> = terms.into_iter().collect();
        terms.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        Self { terms, home: home(&homes), patterns: patterns(), networks: regex(NETWORK) }
    }

    /// The text without what must not be told.
    pub fn clean(&self, text: &str) -> String {
        let mut text = self.home.replace_all(text, shortened_home).into_owned();
        for (term, label) in &self.terms {
            text = without(&text, term, label);
        }
        for (pattern, put) in &self.patterns {
            text = pattern.replace_all(&text, *put).into_owned();
        }
        self.networks.replace_all(&text, network).into_owned()
    }

    /// Every string of a value without it, the names of fields that files gave too.
    pub fn clean_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.clean(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.clean_value(value)),
            Value::Object(fields) => {
                // Fields of ours are plain words.
                let plain = |name: &str| {
                    name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
                };
                let old = std::mem::take(fields);
                for (name, mut value) in old {
                    self.clean_value(&mut value);
                    fields.insert(if plain(&name) { name } else { self.clean(&name) }, value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// A machine's name, and its first part where a domain follows.
fn host(name: &str, add: &mut impl FnMut(&str, &'static str)) {
    add(name, "[host]");
    if let Some((first, _)) = name.split_once('.') {
        add(first, "[host]");
    }
}

/// # Panics
/// Never: the patterns are constants, and what is put into them is escaped.
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern that compiles")
}

/// Home folders with what follows in them.
fn home(homes: &BTreeSet<String>) -> Regex {
    let mut all: Vec<String> = vec![
        r"(?:/var)?/home/[^/\s]+".into(),
        r"/(?:mnt/[a-z]/)?Users/[^/\s]+".into(),
        r"[A-Za-z]:\\+Users\\+[^\\\s]+".into(),
        r"/root\b".into(),
    ];
    // Their own first: one may lie anywhere.
    let own = homes
        .iter()
        .map(|home| home.trim_end_matches('/'))
        .filter(|home| home.len() > 2 && *home != "/nonexistent");
    let mut own: Vec<String> = own.map(regex::escape).collect();
    own.sort_by_key(|home| std::cmp::Reverse(home.len()));
    own.append(&mut all);
    regex(&format!(r#"(?:{})(?P<rest>(?:[/\\][^\s"'`<>:;,|()\[\]]*)?)"#, own.join("|")))
}

/// `~/.../name`: what lies between may be anybody's project.
fn shortened_home(found: &Captures<'_>) -> String {
    let rest = found.name("rest").map_or("", |rest| rest.as_str());
    let parts: Vec<&str> = rest.split(['/', '\\']).filter(|part| !part.is_empty()).collect();
    match parts[..] {
        [] => format!("~{}", if rest.is_empty() { "" } else { "/" }),
        [name] => format!("~/{name}"),
        [.., name] => format!("~/.../{name}"),
    }
}

fn patterns() -> Vec<(Regex, &'static str)> {
    let hex = "[0-9A-Fa-f]";
    [
        // Of mail, and of who built a kernel where: `(name@machine)`.
        (r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]*".to_string(), "[address]"),
        // Ids of devices as CUDA, HIP and Vulkan write them, and of file systems.
        (format!(r"(?:GPU-)?\b{hex}{{8}}-{hex}{{4}}-{hex}{{4}}-{hex}{{4}}-{hex}{{12}}\b"), "[uuid]"),
        (format!(r"\bGPU-{hex}{{8,}}\b"), "[uuid]"),
        (format!(r"\b(?:{hex}{{32}}|{hex}{{16}})\b"), "[uuid]"),
        (format!(r"\b{hex}{{2}}(?:[:-]{hex}{{2}}){{5,}}\b"), "[mac]"),
        (
            r"(?i)\b(serial(?:[ _-]*(?:number|no\.?|#))?|s/n|unique[ _-]?id|asset[ _-]?tag)(\s*[:=]\s*|\s+#?)[A-Za-z0-9][A-Za-z0-9._/-]{3,}"
                .to_string(),
            "$1$2[serial]",
        ),
    ]
    .map(|(pattern, put)| (regex(&pattern), put))
    .into()
}

/// What may be an address of a network, with the characters that would make it a part of something longer.
const NETWORK: &str = r"[0-9A-Za-z_.:%-]*(?:[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+|[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*)[0-9A-Za-z_.:%-]*";

fn network(found: &Captures<'_>) -> String {
    let whole = &found[0];
    // `192.0.2.7:443`, `inet:192.0.2.7.`, `fe80::1%eth0`
    let bare = whole.trim_matches(['.', ':', '-', '_']);
    let is_v6 = |text: &str| {
        let text = text.split('%').next().unwrap_or_default();
        let groups = text.split(':').filter(|group| !group.is_empty()).count();
        groups >= 2 && text.parse::<Ipv6Addr>().is_ok()
    };
    let is_v4 = |text: &str| text.parse::<Ipv4Addr>().is_ok();
    if is_v6(whole) || is_v6(bare) || is_v4(bare) {
        return "[ip]".into();
    }
    if !whole.contains('.') {
        return whole.into();
    }
    let parts: Vec<String> = whole
        .split(':')
        .map(|part| if is_v4(part.trim_matches(['.', '-'])) { "[ip]".into() } else { part.to_string() })
        .collect();
    parts.join(":")
}

/// The text with `term` (in small letters) replaced wherever it is a word by itself.
fn without(text: &str, term: &str, label: &str) -> String {
    // Lower case of some letters is longer or shorter; such texts are compared as they are.
    let small = text.to_lowercase();
    let small = if small.len() == text.len() { small } else { text.to_string() };
    let (mut out, mut kept, mut from) = (String::new(), 0, 0);
    while let Some(at) = small[from..].find(term).map(|at| at + from) {
        let end = at + term.len();
        let is_word = |c: char| c.is_alphanumeric();
        let alone = !small[..at].chars().next_back().is_some_and(is_word)
            && !small[end..].chars().next().is_some_and(is_word);
        if alone && text.is_char_boundary(at) && text.is_char_boundary(end) {
            out += &text[kept..at];
            out += label;
            kept = end;
        }
        from = if alone { end } else { at + small[at..].chars().next().map_or(1, char::len_utf8) };
    }
    out + &text[kept..]
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Files for Machine {
        fn text(&self, path: &str) -> Option<String> {
            self.0.iter().find(|(name, _)| *name == path).map(|(_, text)| text.to_string())
        }

        fn names(&self, folder: &str) -> Vec<String> {
            let folder = format!("{folder}/");
            let names =
                self.0.iter().filter_map(|(path, _)| path.strip_prefix(folder.as_str())?.split('/').next());
            names.map(String::from).collect()
        }
    }

    struct Machine(Vec<(&'static str, &'static str)>);

    fn redaction() -> Redaction {
        let machine = Machine(vec![
            ("/etc/hostname", "Falkenstein.lan\n"),
            (
                "/etc/passwd",
                "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000:Ada Lovelace,,,:/data/people/ada:/bin/sh\n",
            ),
            ("/sys/class/dmi/id/board_serial", "MB-7731-XYZZY\n"),
            ("/sys/class/dmi/id/product_serial", "To Be Filled By O.E.M.\n"),
            ("/sys/class/dmi/id/chassis_serial", "0\n"),
            ("/sys/bus/pci/devices/0000:03:00.0/unique_id", "c0ffee1234abcd\n"),
            ("/sys/class/net/eth0/address", "02:42:ac:11:00:02\n"),
            ("/sys/class/net/lo/address", "00:00:00:00:00:00\n"),
        ]);
        let env = [
            ("USER", "ada"),
            ("HOME", "/data/people/ada"),
            ("HOSTNAME", "falkenstein"),
            ("SUDO_USER", "grace"),
        ];
        let env = env.map(|(name, value)| (name.to_string(), value.to_string())).into();
        Redaction::of(&machine, &[&env])
    }

    #[test]
    fn what_is_known_of_the_machine_goes_wherever_it_stands() {
        let redaction = redaction();
        for (text, clean) in [
            ("user ada, ADA and Ada's", "user [user], [user] and [user]'s"),
            ("adamant ada_x nevada", "adamant [user]_x nevada"),
            ("Ada Lovelace; Lovelace; grace@x", "[user]; [user]; [user]@x"),
            ("FALKENSTEIN falkenstein.lan falkensteins", "[host] [host] falkensteins"),
            ("/data/people/ada/project/x/venv/lib: no", "~/.../lib: no"),
            ("'/data/people/ada' and /data/people/ada/.bashrc", "'~' and ~/.bashrc"),
            ("/home/bob/a.txt /Users/eve /root/x/y", "~/a.txt ~ ~/.../y"),
            (r"C:\Users\Eve\AppData\x.dll", "~/.../x.dll"),
            ("board MB-7731-XYZZY, id C0FFEE1234ABCD", "board [serial], id [serial]"),
            ("/rootfs and /home are no home", "/rootfs and /home are no home"),
        ] {
            assert_eq!(redaction.clean(text), clean, "{text}");
            assert_eq!(redaction.clean(clean), clean, "twice");
        }
    }

    #[test]
    fn what_looks_like_an_id_or_an_address_goes() {
        let redaction = redaction();
        for (text, clean) in [
            ("GPU-18f2a4c39b7d6e10 at 3", "[uuid] at 3"),
            ("UUID 123e4567-e89b-12d3-a456-426614174000.", "UUID [uuid]."),
            ("id=0123456789abcdef0123456789abcdef", "id=[uuid]"),
            ("eth0: de:ad:be:ef:00:01 up, 02-42-AC-11-00-02", "eth0: [mac] up, [mac]"),
            ("to 192.168.178.23:443, 10.0.0.7.", "to [ip]:443, [ip]"),
            ("from fe80::42:acff:fe11:2%eth0 2001:db8::1", "from [ip] [ip]"),
            ("SerialNumber: 4C530001231120115142", "SerialNumber: [serial]"),
            ("Serial Number = AB12CD, S/N: XX-99-12", "Serial Number = [serial], S/N: [serial]"),
            ("me@example.org wrote", "[address] wrote"),
            ("Linux version 6.9 (grete@tower3) (gcc) #1 @0", "Linux version 6.9 ([address]) (gcc) #1 @0"),
        ] {
            assert_eq!(redaction.clean(text), clean, "{text}");
        }
    }

    #[test]
    fn what_a_report_is_for_stays() {
        let redaction = redaction();
        for text in [
            "MIOpenDriver conv -n 1 -c 64 -H 224 -W 224 -k 64 -y 3 -x 3 -F 1",
            "AMD Radeon RX 5600 XT (RADV NAVI10) at 0000:03:00.0, gfx1010",
            "radv Mesa 25.2.4 (LLVM 20.1.8), amdgpu 6.12.43-1, NVIDIA 580.95.05, libamdhip64.so.5.2.50203",
            "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring comp_1.0.0 timeout, signaled seq=2041, emitted seq=2043",
            "amdgpu 0000:03:00.0: amdgpu: in page starting at address 0x0000800000000000 from client 27",
            "wave32_verify::report at 12:34:56 2026-11-24T01:02:03",
            "pp_dpm_sclk 1: 1750Mhz *; serial8250: ttyS0",
            "/opt/rocm-5.2.3/lib /usr/share/vulkan/icd.d/radeon_icd.x86_64.json",
        ] {
            assert_eq!(redaction.clean(text), text);
        }
    }

    #[test]
    fn every_string_of_a_value_is_seen() {
        let mut value =
            serde_json::json!({"a": ["ada", {"b": "x ada", "/home/ada/k": 1}], "n": 3, "ok": true});
        redaction().clean_value(&mut value);
        assert_eq!(
            value,
            serde_json::json!({"a": ["[user]", {"b": "x [user]", "~/k": 1}], "n": 3, "ok": true})
        );
    }

    #[test]
    fn odd_letters_do_not_break_it() {
        let redaction = redaction();
        for text in ["İİ ada İ", "ada\u{130}", "", "ßada ß ada", "日本ada日本"] {
            let clean = redaction.clean(text);
            assert!(clean.len() <= text.len() + 40, "{clean}");
        }
    }
}
