//! What `doctor --fix` does by itself: lines that set a harmful variable are disabled, leftovers are moved away.
//!
//! Everything else, and whatever is not certain, is for the user: a line that does more than set the variable, commands
//! of package managers, files of another owner.

use crate::finding::{FileLine, Finding, Fix};
use crate::verdict::step;
use std::path::Path;
use wave32_change::{ChangeError, ChangePlan, Draft, Root};
use wave32_profile::Dialect;

/// Whose files are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner<'h> {
    /// The user's, below this home folder.
    User(&'h str),
    /// The system's: whatever is in nobody's home.
    System,
}

impl Owner<'_> {
    fn owns(self, path: &str) -> bool {
        let below = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        match self {
            Self::User(home) => below(home.trim_end_matches('/')),
            Self::System => !below("/home") && !below("/root"),
        }
    }
}

/// A plan, and what it leaves to the user.
#[derive(Debug)]
pub struct Repairs {
    /// To be shown, asked about and carried out.
    pub plan: ChangePlan,
    /// Steps for the user, a line each.
    pub by_hand: Vec<String>,
}

/// Plans what can be put right by changing files of that owner; on the running machine (`live`) also by its package
/// manager.
///
/// # Errors
/// The file that cannot be read, and why.
pub fn plan(root: &Root, findings: &[Finding], owner: Owner<'_>, live: bool) -> Result<Repairs, ChangeError> {
    let mut draft = Draft::new(root, "repairs by the doctor");
    let mut by_hand: Vec<String> = Vec::new();
    let mut seen: Vec<&FileLine> = Vec::new();
    for finding in findings.iter().filter(|f| f.severity.is_wrong()) {
        match &finding.fix {
            Fix::UnsetVariable { name, places, .. } => {
                for place in places.iter().filter(|place| !seen.contains(place)).collect::<Vec<_>>() {
                    seen.push(place);
                    by_hand.extend(disable(&mut draft, name, place, owner)?);
                }
            }
            Fix::Restore { files, commands, .. }
                if live && owner == Owner::System && files.iter().all(|path| owner.owns(path)) =>
            {
                for path in files {
                    draft.remove(Path::new(path))?;
                }
                commands.iter().for_each(|command| draft.then(command));
            }
            Fix::RemoveLeftover { path } if owner.owns(path) => draft.remove(Path::new(path))?,
            other => by_hand.push(step(other)),
        }
    }
    let mut told: Vec<String> = Vec::new();
    by_hand.retain(|line| {
        !told.contains(line) && {
            told.push(line.clone());
            true
        }
    });
    Ok(Repairs { plan: draft.finish(), by_hand })
}

/// Disables a line; what is for the user instead is said.
fn disable(
    draft: &mut Draft<'_>,
    name: &str,
    place: &FileLine,
    owner: Owner<'_>,
) -> Result<Option<String>, ChangeError> {
    let by_hand = format!("take {name} out of {}, line {}", place.file, place.line);
    if !owner.owns(&place.file) {
        return Ok(Some(by_hand));
    }
    if !place.alone {
        return Ok(Some(format!("{by_hand}, which does more than that: {}", place.text.trim())));
    }
    let disabled = dialect(&place.file).disabled(&place.text);
    match draft.replace_line(Path::new(&place.file), place.line, &place.text, &disabled) {
        Ok(()) => Ok(None),
        Err(ChangeError::Refused { why, .. }) => Ok(Some(format!("{by_hand}: {why}"))),
        Err(other) => Err(other),
    }
}

/// The language of a file that sets variables, by its name.
fn dialect(file: &str) -> Dialect {
    let ending = file.rsplit('.').next().unwrap_or_default();
    match ending {
        "fish" => Dialect::Fish,
        "csh" => Dialect::Csh,
        "conf" | "service" => Dialect::Systemd,
        _ if file == "/etc/environment" || file.ends_with("/.pam_environment") => Dialect::Systemd,
        _ => Dialect::Sh,
    }
}
