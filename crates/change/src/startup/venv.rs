//! A virtual environment's own scripts: the settings come with `activate` and go with `deactivate`.

use super::block::with_block;
use crate::{ChangeError, Draft, Root};
use std::path::Path;
use wave32_profile::{Dialect, Setting};

/// What calls the restoring script from csh's `deactivate`, which is an alias of one line.
const CSH_HOOK: &str =
    "test $?_wave32_restore != 0 && source \"$_wave32_restore\" && unset _wave32_restore; ";

/// Plans the edits of every activate script that the environment at `folder` has.
pub(super) fn add(
    draft: &mut Draft<'_>,
    root: &Root,
    folder: &Path,
    settings: &[Setting],
) -> Result<(), ChangeError> {
    let exists = |path: &Path| root.is_file(path).map_err(ChangeError::io("look at", path));
    let scripts =
        [("activate", Dialect::Sh), ("activate.fish", Dialect::Fish), ("activate.csh", Dialect::Csh)];
    let bin = folder.join("bin");
    let mut there = Vec::new();
    for script in &scripts {
        if exists(&bin.join(script.0))? {
            there.push(script);
        }
    }
    if !exists(&folder.join("pyvenv.cfg"))? || there.is_empty() {
        let why = "is no virtual environment with an activate script".into();
        let next = "give the folder that has pyvenv.cfg in it: --to venv=FOLDER".into();
        return Err(ChangeError::Refused { path: folder.into(), why, next });
    }
    for &&(name, dialect) in &there {
        let path = bin.join(name);
        draft.edit(&path, 0o644, |old| hooked(&path, old.unwrap_or_default(), dialect, settings))?;
        if dialect == Dialect::Csh {
            let script = format!("# Read by `deactivate`.\n{}", dialect.restore(settings));
            draft.edit(&bin.join("wave32-restore.csh"), 0o644, |_| Ok(script.into_bytes()))?;
        }
    }
    Ok(())
}

/// The script with the restoring part in `deactivate` and the setting part at its end.
fn hooked(path: &Path, old: &[u8], dialect: Dialect, settings: &[Setting]) -> Result<Vec<u8>, ChangeError> {
    let head = match dialect {
        Dialect::Fish => "function deactivate",
        Dialect::Csh => "alias deactivate '",
        Dialect::Sh | Dialect::Systemd => "deactivate",
    };
    let mut at = 0;
    let found = old.split_inclusive(|&b| b == b'\n').find_map(|line| {
        let begin = at;
        at += line.len();
        let text = String::from_utf8_lossy(line);
        let opens = dialect != Dialect::Sh
            || text
                .strip_prefix(head)
                .is_some_and(|rest| rest.split_whitespace().collect::<String>() == "(){");
        (text.starts_with(head) && opens).then_some((begin, at))
    });
    let Some((begin, end)) = found else {
        let why = "has no `deactivate` that we know how to extend".into();
        let next = "make the environment anew (python -m venv), or choose another place with --to".into();
        return Err(ChangeError::Refused { path: path.into(), why, next });
    };
    let mut body = dialect.activate(settings);
    let text = if dialect == Dialect::Csh {
        body += "set _wave32_restore = \"$VIRTUAL_ENV/bin/wave32-restore.csh\"\n";
        let quote = begin + head.len();
        let hook = if old[quote..].starts_with(CSH_HOOK.as_bytes()) { "" } else { CSH_HOOK };
        [&old[..quote], hook.as_bytes(), &old[quote..]].concat()
    } else {
        with_block(path, old, " deactivate", &dialect.restore(settings), end)?
    };
    let len = text.len();
    with_block(path, &text, "", &body, len)
}
