//! What a live machine's own programs are asked, rpm and journalctl: stand-ins that answer, hang, flood, fail or are not there.
#![cfg(unix)]

mod common;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use wave32_doctor::facts::{Facts, Library};
use wave32_doctor::report;
use wave32_doctor::scan::{Options, scan};
use wave32_doctor::system::{Process, System};
use wave32_doctor::verdict::Diagnosis;

/// `wave32 doctor` is to take less than 2 s; drivers are asked meanwhile. A busy machine is given time; what hangs here takes 30 s.
const QUICK: Duration = Duration::from_secs(12);

const FEDORA: &str = "file /etc/os-release\n| ID=fedora\n| VERSION_ID=42\n";
const ROCM: &str = "one /usr/lib/sysimage/rpm/rpmdb.sqlite x\n\
    one /opt/rocm-6.2.4/.info/version 6.2.4-63\n\
    library /opt/rocm-6.2.4/lib/libMIOpen.so.1.0.60204 MIOPEN_FIND_MODE\n\
    link /opt/rocm-6.2.4/lib/libMIOpen.so.1 libMIOpen.so.1.0.60204\n\
    library /opt/rocm-6.2.4/lib/libhsa-runtime64.so.1.7.60204\n\
    link /opt/rocm-6.2.4/lib/libhsa-runtime64.so.1 libhsa-runtime64.so.1.7.60204\n\
    link /opt/rocm rocm-6.2.4\n";
const MIOPEN: &str = "/opt/rocm-6.2.4/lib/libMIOpen.so.1.0.60204";
/// What `rpm -qf` prints in the form it is asked for: every file of the packages asked for.
const OWNERS: &str = "hsa-rocr /opt/rocm-6.2.4/lib/libhsa-runtime64.so.1.7.60204\n\
    hsa-rocr /opt/rocm-6.2.4/lib/libhsa-runtime64.so.1\n\
    miopen-hip /opt/rocm-6.2.4/lib/libMIOpen.so.1.0.60204\n\
    miopen-hip /opt/rocm-6.2.4/lib/libMIOpen.so.1\n\
    miopen-hip /opt/rocm-6.2.4/share/miopen/db/gfx1030_36.db\n";

/// A live machine made of this tree, whose programs are the stand-ins in `bin`.
struct Machine {
    root: tempfile::TempDir,
}

impl Machine {
    fn new(tree: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        common::build(root.path(), tree);
        Self { root }
    }

    fn bin(&self) -> PathBuf {
        self.root.path().join("bin")
    }

    /// rpm that knows these owners and says that of each package.
    fn rpm(self, verify: &str) -> Self {
        let script = format!(
            "printf '%s\\n' \"$*\" >> {0}/asked\ncase $1 in\n-qf) /bin/cat <<'END'\n{OWNERS}END\n;;\n-V) {verify}\n;;\nesac",
            self.root.path().display()
        );
        common::program(&self.bin(), "rpm", &script);
        self
    }

    fn journal(self, script: &str) -> Self {
        let script = format!("printf '%s\\n' \"$*\" > {}/asked\n{script}", self.root.path().display());
        common::program(&self.bin(), "journalctl", &script);
        self
    }

    /// What was asked, a line each.
    fn asked(&self) -> String {
        fs::read_to_string(self.root.path().join("asked")).unwrap_or_default()
    }

    fn scan(&self, live: bool, thorough: bool) -> Facts {
        // Nothing but the stand-ins: this machine's own programs tell of this machine.
        let path = self.bin().display().to_string();
        let process =
            Process { env: [("PATH".to_string(), path)].into(), uid: Some(1000), ..Process::default() };
        scan(
            &System::new(self.root.path().to_path_buf(), process, live),
            &Options { thorough, ..Options::default() },
        )
    }
}

fn library(facts: &Facts, name: &str) -> Library {
    facts.rocm.iter().find_map(|r| r.library(name)).unwrap_or_else(|| panic!("no {name}")).clone()
}

fn rules(facts: &Facts) -> Vec<&'static str> {
    let found = Diagnosis::of(facts.clone()).findings;
    found
        .iter()
        .map(|f| f.rule)
        .filter(|r| matches!(*r, "patched-library" | "missing-library" | "driver-sources"))
        .collect()
}

fn gap<'f>(facts: &'f Facts, words: &str) -> &'f str {
    facts.gaps.iter().find(|g| g.contains(words)).unwrap_or_else(|| panic!("{words}: {:?}", facts.gaps))
}

#[test]
fn libraries_that_are_as_their_packages_have_them() {
    // A configuration file was edited, and a file's time and owner are other ones: no findings.
    let machine = Machine::new(&format!("{FEDORA}{ROCM}")).rpm(
        "case $5 in *) echo 'S.5....T.  c /opt/rocm-6.2.4/lib/libMIOpen.so.conf'; \
         echo '.....UGT.    /opt/rocm-6.2.4/lib/libMIOpen.so.1.0.60204'; exit 1;; esac",
    );
    let facts = machine.scan(true, true);
    for (name, package) in [("miopen", "miopen-hip"), ("hsa", "hsa-rocr")] {
        let library = library(&facts, name);
        assert_eq!(
            (library.package.as_deref(), library.intact),
            (Some(package), Some(true)),
            "{:?}",
            facts.gaps
        );
    }
    assert_eq!(rules(&facts), [] as [&str; 0]);
    let asked = machine.asked();
    let lines: Vec<&str> = asked.lines().collect();
    assert!(lines[0].starts_with("-qf --qf [%{=NAME} %{FILENAMES}\\n] /opt/rocm-6.2.4/lib/lib"), "{asked}");
    assert_eq!(lines[1..], ["-V --nodeps --noscripts hsa-rocr", "-V --nodeps --noscripts miopen-hip"]);
}

#[test]
fn a_changed_and_a_missing_file() {
    let script = |what: &str| format!("case $4 in miopen-hip) echo '{what}'; exit 1;; esac");
    for what in ["S.5....T.", "..5....T.", "S.5......", "....L....", "SM5DLUGTP"] {
        let machine = Machine::new(&format!("{FEDORA}{ROCM}")).rpm(&script(&format!("{what}    {MIOPEN}")));
        let facts = machine.scan(true, true);
        assert_eq!(library(&facts, "miopen").intact, Some(false), "{what}");
        assert_eq!(library(&facts, "hsa").intact, Some(true));
        assert_eq!(rules(&facts), ["patched-library"]);
        let text = report::text(&Diagnosis::of(facts));
        assert!(text.contains("$ sudo dnf reinstall miopen-hip"), "{text}");
    }
    // libhsa is gone, and its package is known by the name that the other library's package has.
    let gone = "missing     /opt/rocm-6.2.4/lib/libMIOpen.so.1.0.60203";
    let facts = Machine::new(&format!("{FEDORA}{ROCM}")).rpm(&script(gone)).scan(true, true);
    assert_eq!(facts.missing.len(), 1);
    assert_eq!(facts.missing[0].package, "miopen-hip");
    assert_eq!((rules(&facts), library(&facts, "miopen").intact), (vec!["missing-library"], Some(true)));
    // What rpm could not see, and what may come and go.
    for line in [
        "missing     /opt/rocm-6.2.4/lib/libMIOpen.so.9 (Permission denied)",
        "missing   c /opt/rocm-6.2.4/lib/libMIOpen.so.9",
        "missing   g /opt/rocm-6.2.4/lib/libMIOpen.so.9",
        "missing     /opt/rocm-6.2.4/share/doc/README",
    ] {
        let facts = Machine::new(&format!("{FEDORA}{ROCM}")).rpm(&script(line)).scan(true, true);
        assert_eq!((rules(&facts), facts.missing.len()), (vec![], 0), "{line}");
    }
}

#[test]
fn a_library_that_a_link_stands_in_for() {
    let tree = ROCM.replace(&format!("library {MIOPEN}"), "library /opt/patched/libMIOpen.so");
    let tree = format!("{FEDORA}{tree}link {MIOPEN} /opt/patched/libMIOpen.so\n");
    let script = format!("case $4 in miopen-hip) echo '....L....    {MIOPEN}'; exit 1;; esac");
    let facts = Machine::new(&tree).rpm(&script).scan(true, true);
    let library = library(&facts, "miopen");
    assert_eq!(library.path, "/opt/patched/libMIOpen.so");
    assert_eq!(
        (library.package.as_deref(), library.intact),
        (Some("miopen-hip"), Some(false)),
        "{:?}",
        facts.gaps
    );
    assert_eq!(rules(&facts), ["patched-library"]);
}

#[test]
fn rpm_that_hangs_fails_floods_or_is_not_there() {
    for (script, words) in [
        ("exec /bin/sleep 30", "took too long"),
        (
            "while :; do echo 'S.5....T.    /opt/rocm-6.2.4/lib/libMIOpen.so.1.0.60204 and more and more'; done",
            "took too long",
        ),
        ("echo 'error: cannot open the database'; exit 1", "cannot open the database"),
        ("exit 1", "does not say why"),
    ] {
        let machine = Machine::new(&format!("{FEDORA}{ROCM}")).rpm(script);
        let start = Instant::now();
        let facts = machine.scan(true, false);
        assert!(start.elapsed() < QUICK, "{script}: {:?}", start.elapsed());
        assert_eq!((library(&facts, "miopen").intact, rules(&facts)), (None, vec![]), "{script}");
        let told = gap(&facts, "not compared with package");
        // A flood ends at its length or at the time for it, whichever comes first.
        assert!(
            told.contains(words) || words == "took too long" && told.contains("too much"),
            "{script}: {told}"
        );
    }
    let hanging = Machine::new(&format!("{FEDORA}{ROCM}"));
    common::program(&hanging.bin(), "rpm", "exec /bin/sleep 30");
    let start = Instant::now();
    gap(&hanging.scan(true, false), "rpm took too long");
    assert!(start.elapsed() < QUICK);
    let absent = Machine::new(&format!("{FEDORA}{ROCM}")).scan(true, false);
    assert!(gap(&absent, "rpm is not installed").contains("`rpm -V hsa-rocr miopen-hip`"));
    assert_eq!(library(&absent, "miopen").package, None);
}

#[test]
fn where_rpm_is_not_asked() {
    // A recorded tree runs nothing; a system without RPM's database has no such packages.
    let machine = Machine::new(&format!("{FEDORA}{ROCM}")).rpm("exit 0");
    gap(&machine.scan(false, true), "nothing is run for a recorded tree");
    assert_eq!(machine.asked(), "");
    let tree = ROCM.replace("/usr/lib/sysimage/rpm/rpmdb.sqlite", "/var/lib/pacman/local/x");
    let machine = Machine::new(&tree).rpm("exit 0");
    let facts = machine.scan(true, true);
    assert_eq!((machine.asked().as_str(), library(&facts, "miopen").package), ("", None));
}

#[test]
fn large_libraries_are_compared_by_size_unless_told_otherwise() {
    let script = "echo ok; exit 0";
    let machine = Machine::new(&format!("{FEDORA}{ROCM}")).rpm(script);
    let file = fs::OpenOptions::new().write(true).open(machine.root.path().join(&MIOPEN[1..])).unwrap();
    file.set_len(65 << 20).unwrap();
    let facts = machine.scan(true, false);
    assert_eq!((library(&facts, "miopen").intact, library(&facts, "hsa").intact), (None, Some(true)));
    gap(&facts, "of 65 MiB only the size was compared with package miopen-hip");
    assert!(
        machine.asked().contains("-V --nodeps --noscripts --nofiledigest miopen-hip"),
        "{}",
        machine.asked()
    );
    assert_eq!(library(&machine.scan(true, true), "miopen").intact, Some(true));
}

#[test]
fn edited_sources_of_the_driver() {
    let source = "/usr/src/amdgpu-6.10.5-2125197.el9/amd/amdkfd/kfd_device.c";
    let tree = format!("{FEDORA}one /var/lib/rpm/rpmdb.sqlite x\none {source} x\n");
    let script = format!(
        "case $* in *amdgpu-dkms) echo 'S.5....T.    {source}'; \
         echo 'S.5....T.    /usr/src/amdgpu-6.10.5-2125197.el9/amd/display/x.c'; exit 1;; esac"
    );
    let facts = Machine::new(&tree).rpm(&script).scan(true, false);
    assert_eq!(rules(&facts), ["driver-sources"], "{:?}", facts.gaps);
    assert_eq!(facts.leftovers[0].path, source);
    let text = report::text(&Diagnosis::of(facts));
    assert!(text.contains("$ dnf --assumeyes reinstall amdgpu-dkms"), "{text}");
}

const PREEMPTION: &str = "[ 4711.000001] pc kernel: amdgpu 0000:03:00.0: amdgpu: MES failed to respond to msg=REMOVE_QUEUE\n\
    [ 4711.123456] pc kernel: amdgpu: Failed to evict process queues\n";

#[test]
fn the_journal_is_read_where_nothing_else_is() {
    let script = format!("/bin/cat <<'END'\n[    0.000000] pc kernel: Linux version 6.14\n{PREEMPTION}END");
    let machine = Machine::new(FEDORA).journal(&script);
    let facts = machine.scan(true, false);
    assert_eq!(facts.log.source.as_deref(), Some("journalctl -k -b"), "{:?}", facts.gaps);
    assert_eq!(facts.log.events.iter().map(|e| (e.kind, e.count)).collect::<Vec<_>>(), [("preemption", 1)]);
    assert!(facts.log.events[0].line.starts_with("[ 4711.123456]"));
    assert_eq!(machine.asked(), "-k -b -o short-monotonic --no-pager --quiet --lines=20000\n");
    // A file is read first, and only its last boot; a recorded tree is not asked at all.
    let old = "file /var/log/kern.log\n| pc kernel: Linux version 6.8\n\
        | pc kernel: amdgpu: GPU reset begin!\n| pc kernel: Linux version 6.8\n| pc kernel: amdgpu: ring gfx timeout\n";
    let machine = Machine::new(old).journal(&script);
    let facts = machine.scan(true, false);
    assert_eq!(facts.log.source.as_deref(), Some("/var/log/kern.log"));
    assert_eq!(facts.log.events.iter().map(|e| e.kind).collect::<Vec<_>>(), ["ring-timeout"]);
    assert_eq!(machine.asked(), "");
    let machine = Machine::new(FEDORA).journal(&script);
    let recorded = machine.scan(false, false);
    gap(&recorded, "the tree has no kernel log");
    assert_eq!((recorded.log.source, machine.asked().as_str()), (None, ""));
}

#[test]
fn a_journal_that_tells_nothing() {
    for (script, words) in [
        ("echo 'Hint: not seeing messages' >&2; exit 1", "shows nothing"),
        ("echo '[ 12.000000] pc gnome-shell[1]: amdgpu is a word here too'", "shows nothing"),
        ("exec /bin/sleep 30", "took too long"),
        ("exit 0", "shows nothing"),
    ] {
        let start = Instant::now();
        let facts = Machine::new(FEDORA).journal(script).scan(true, false);
        assert!(start.elapsed() < QUICK, "{script}: {:?}", start.elapsed());
        let told = gap(&facts, "the kernel's log");
        assert!(
            told.contains(words) && told.contains("`sudo journalctl -k -b | grep amdgpu`"),
            "{script}: {told}"
        );
        assert_eq!(facts.log.source, None);
    }
    let flood = "while :; do echo '[ 1.000000] pc kernel: amdgpu: GPU reset begin!'; done";
    let start = Instant::now();
    let facts = Machine::new(FEDORA).journal(flood).scan(true, false);
    assert!(start.elapsed() < QUICK, "{:?}", start.elapsed());
    assert!(facts.log.events.iter().all(|e| e.count < (5 << 20) / 40));
    gap(&Machine::new(FEDORA).scan(true, false), "journalctl is not installed");
}
