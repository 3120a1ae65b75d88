//! Random convolutions through the C ABI on the strict virtual card, against f64 loops: see `c/convolutions.c`.

mod card;

use card::{launcher, on_card, program};

#[test]
fn random_convolutions_are_right_whatever_way_they_are_asked_for() {
    let Some(launcher) = launcher() else { return };
    on_card(&launcher, &program("convolutions"), &[]).clean();
}
