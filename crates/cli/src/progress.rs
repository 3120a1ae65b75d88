//! A bar on standard error, where a person looks on.

use crate::output::tell;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// A bar, hidden where standard error is no terminal.
pub struct Progress {
    /// The bar itself.
    pub bar: ProgressBar,
    /// Whether it is to be seen.
    pub shown: bool,
}

impl Progress {
    /// A bar that looks as `template` says; `forced` shows it in any case.
    pub fn new(forced: bool, template: &str) -> Self {
        let shown = forced || std::io::stderr().is_terminal();
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar, shown }
    }

    /// A line above the bar.
    pub fn say(&self, text: &str) {
        if self.shown {
            self.bar.suspend(|| tell(text));
        } else {
            tell(text);
        }
    }
}
