//! Variables in the words of each shell. Nothing here runs a shell.

use super::{Action, Setting};
use std::fmt::Write as _;

/// A language in which variables are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// bash, zsh, dash and every other POSIX shell.
    Sh,
    /// fish.
    Fish,
    /// csh, tcsh.
    Csh,
    /// systemd's environment.d, which can set but not unset.
    Systemd,
}

impl Dialect {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sh => "sh",
            Self::Fish => "fish",
            Self::Csh => "csh",
            Self::Systemd => "systemd",
        }
    }

    /// The dialect of a shell, by the last part of its path.
    #[must_use]
    pub fn of_shell(name: &str) -> Option<Self> {
        match name {
            "sh" | "bash" | "zsh" | "dash" | "ash" | "ksh" | "mksh" | "posix" => Some(Self::Sh),
            "fish" => Some(Self::Fish),
            "csh" | "tcsh" => Some(Self::Csh),
            "systemd" => Some(Self::Systemd),
            _ => None,
        }
    }

    /// `value` as one word that means exactly itself.
    #[must_use]
    pub fn quoted(self, value: &str) -> String {
        match self {
            Self::Sh => format!("'{}'", value.replace('\'', r"'\''")),
            Self::Fish => format!("'{}'", value.replace('\\', r"\\").replace('\'', r"\'")),
            // History is expanded even within single quotes, and a line ends even there.
            Self::Csh => {
                let value = value.replace('\'', r"'\''").replace('!', r"\!").replace('\n', "\\\n");
                format!("'{value}'")
            }
            // Quotes are taken off first, then $NAME is expanded, and $$ is a dollar.
            Self::Systemd => {
                let mut out = String::from("\"");
                for c in value.chars() {
                    match c {
                        '"' | '\\' | '`' => out.extend(['\\', c]),
                        '$' => out.push_str(r"\$\$"),
                        c => out.push(c),
                    }
                }
                out + "\""
            }
        }
    }

    /// One command that sets or unsets a variable.
    fn command(self, name: &str, action: &Action) -> String {
        match (self, action) {
            (Self::Sh, Action::Set(value)) => format!("export {name}={}", self.quoted(value)),
            (Self::Sh, Action::Unset) => format!("unset {name}"),
            (Self::Fish, Action::Set(value)) => format!("set -gx {name} {}", self.quoted(value)),
            (Self::Fish, Action::Unset) => format!("set -eg {name}"),
            (Self::Csh, Action::Set(value)) => format!("setenv {name} {}", self.quoted(value)),
            (Self::Csh, Action::Unset) => format!("unsetenv {name}"),
            (Self::Systemd, Action::Set(value)) if !value.is_empty() => {
                format!("{name}={}", self.quoted(value))
            }
            // systemd ignores these, with a complaint.
            (Self::Systemd, Action::Set(_)) => format!("# {name} must be empty, which cannot be said here"),
            (Self::Systemd, Action::Unset) => format!("# {name} must not be set, which cannot be said here"),
        }
    }

    /// Commands that make the settings, and nothing else: what can be put on one line.
    #[must_use]
    pub fn commands(self, settings: &[Setting]) -> String {
        settings.iter().map(|setting| self.command(&setting.name, &setting.action) + ";\n").collect()
    }

    /// Commands that make the settings, each with its reason above it.
    #[must_use]
    pub fn settings(self, settings: &[Setting]) -> String {
        let mut out = String::new();
        let mut said = "";
        for Setting { name, action, why, .. } in settings {
            if said != why {
                // A comment ends with its line, whatever the reason holds.
                let _ = writeln!(out, "# {}", why.split_whitespace().collect::<Vec<_>>().join(" "));
            }
            said = why;
            let _ = writeln!(out, "{}", self.command(name, action));
        }
        out
    }

    /// `line`, made to do nothing and still to be read.
    #[must_use]
    pub fn disabled(self, line: &str) -> String {
        let indent = &line[..line.len() - line.trim_start().len()];
        match self {
            // Where this was the only command between `then` and `fi`, a comment alone would be an error.
            Self::Sh | Self::Csh => format!("{indent}: # taken out by wave32: {}", line.trim_start()),
            Self::Fish | Self::Systemd => format!("{indent}# taken out by wave32: {}", line.trim_start()),
        }
    }

    /// Commands that make the settings and remember what was there, for [`Dialect::restore`]; in the environment,
    /// so that a shell started from this one can restore as well.
    #[must_use]
    pub fn activate(self, settings: &[Setting]) -> String {
        let mut out = String::new();
        for Setting { name, .. } in settings {
            let (old, had) = saved(name);
            let _ = match self {
                Self::Sh => writeln!(out, "export {old}=\"${{{name}-}}\" {had}=\"${{{name}+1}}\""),
                Self::Fish => writeln!(out, "set -q {name}; and set -gx {old} ${name}; or set -eg {old}"),
                Self::Csh => {
                    writeln!(out, "unsetenv {old}\nif ($?{name}) then\n    setenv {old} ${name}:q\nendif")
                }
                Self::Systemd => Ok(()),
            };
        }
        out += &self.settings(settings);
        out + match self {
            Self::Sh => "export _WAVE32_ACTIVE=1\n",
            Self::Fish => "set -gx _WAVE32_ACTIVE 1\n",
            Self::Csh => "setenv _WAVE32_ACTIVE 1\n",
            Self::Systemd => "",
        }
    }

    /// Commands that bring back what [`Dialect::activate`] remembered; nothing if it did not run.
    #[must_use]
    pub fn restore(self, settings: &[Setting]) -> String {
        let mut out = String::from(match self {
            Self::Sh => "if [ -n \"${_WAVE32_ACTIVE-}\" ]; then\n",
            Self::Fish => "if set -q _WAVE32_ACTIVE\n",
            Self::Csh => "if ($?_WAVE32_ACTIVE) then\n",
            Self::Systemd => "",
        });
        for Setting { name, .. } in settings {
            let (old, had) = saved(name);
            let _ = match self {
                Self::Sh => writeln!(
                    out,
                    "    if [ -n \"${had}\" ]; then export {name}=\"${old}\"; else unset {name}; fi\n    unset {old} {had}"
                ),
                Self::Fish => writeln!(
                    out,
                    "    set -q {old}; and set -gx {name} ${old}; or set -eg {name}\n    set -eg {old}"
                ),
                Self::Csh => writeln!(
                    out,
                    "    if ($?{old}) then\n        setenv {name} ${old}:q\n        unsetenv {old}\n    else\n        \
                     unsetenv {name}\n    endif"
                ),
                Self::Systemd => Ok(()),
            };
        }
        out + match self {
            Self::Sh => "    unset _WAVE32_ACTIVE\nfi\n",
            Self::Fish => "    set -eg _WAVE32_ACTIVE\nend\n",
            Self::Csh => "    unsetenv _WAVE32_ACTIVE\nendif\n",
            Self::Systemd => "",
        }
    }
}

/// Where the old value of a variable is kept, and whether there was one.
fn saved(name: &str) -> (String, String) {
    (format!("_WAVE32_OLD_{name}"), format!("_WAVE32_HAD_{name}"))
}
