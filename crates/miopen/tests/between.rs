//! Each layer between two convolutions of the same handle, through the C ABI on the strict virtual card: see `c/layers.c`.
//! `make miopen-real` has the same before AMD's own MIOpen.

mod card;

use card::{launcher, on_card, program, run};
use std::process::Command;

#[test]
fn layers_are_right_between_convolutions() {
    let Some(launcher) = launcher() else { return };
    let layers = program("layers");
    let mut list = Command::new(&layers);
    list.arg("--list").env("LD_LIBRARY_PATH", card::library().parent().unwrap());
    let names = run(list).stdout;
    assert!(names.lines().count() > 10, "{names}");
    for name in names.lines() {
        on_card(&launcher, &layers, &[name, "--threads", "2"]).clean();
    }
}
