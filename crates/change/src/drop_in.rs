//! wave32's libMIOpen in the place of the vendor's, in a folder of libraries, and out of it again.
//!
//! What programs load is a file at the end of some links (`libMIOpen.so` to `.so.1` to `.so.1.0.50200`), or under a name
//! of a wheel's (`libMIOpen.so`, `libMIOpen-5b3f1c.so.1`). Links stay; each file gives its name to ours and is kept in the
//! same folder under another, hidden one, by which its package, the loader's cache and `ldconfig` pass. So the libraries
//! that it needs are still found beside it, and it comes back as the very file that it was.

use crate::{ChangeError, Draft, Root};
use serde::Serialize;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use wave32_host::own::{self, KEPT, MIOPEN, Own, is_miopen, kept_name};

/// A name under which programs load a MIOpen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MiopenFile {
    /// The file.
    pub path: PathBuf,
    /// wave32's, if it is.
    pub ours: Option<Own>,
    /// The vendor's file that had this name before.
    pub kept: Option<PathBuf>,
    /// It is gone, and only what was kept is there.
    pub missing: bool,
}

fn refused(path: &Path, why: impl Into<String>, next: impl Into<String>) -> ChangeError {
    ChangeError::Refused { path: path.into(), why: why.into(), next: next.into() }
}

/// The MIOpens of a folder. Links that lead nowhere are none.
///
/// # Errors
/// A folder that cannot be read; a link out of it, whose library is another folder's.
pub fn places(root: &Root, folder: &Path) -> Result<Vec<MiopenFile>, ChangeError> {
    let inside = root.resolve(folder).map_err(ChangeError::io("find", folder))?;
    let names = root.names(&inside).map_err(ChangeError::io("read", folder))?;
    let (mut files, mut kept) = (BTreeSet::new(), BTreeSet::new());
    for name in names {
        let Some(name) = name.to_str() else { continue };
        if let Some(of) = name.strip_prefix(KEPT) {
            kept.insert(inside.join(of));
        } else if is_miopen(name) {
            let path = inside.join(name);
            let real = root.resolve(&path).map_err(ChangeError::io("find", &path))?;
            if !root.is_file(&real).map_err(ChangeError::io("look at", &real))? {
                continue;
            }
            if real.parent() != Some(&inside) {
                let there = real.parent().unwrap_or(&real).display();
                return Err(refused(
                    &path,
                    format!("is a link to {}", real.display()),
                    format!("name that folder: --into {there}"),
                ));
            }
            files.insert(real);
        }
    }
    let place = |path: &PathBuf| {
        let missing = !files.contains(path);
        // What cannot be opened now is not taken for the vendor's.
        let file = (!missing).then(|| root.open(path)).transpose().map_err(ChangeError::io("read", path))?;
        Ok(MiopenFile {
            ours: file.and_then(own::of).filter(|own| own.name == "libMIOpen"),
            kept: kept.contains(path).then(|| kept_name(path)),
            missing,
            path: path.clone(),
        })
    };
    files.union(&kept).map(place).collect()
}

/// Plans to put `library` (ours, whole) into `folder`; without a MIOpen there only where `alone` is told.
///
/// # Errors
/// The folder has no MIOpen; a file is not a MIOpen; a file cannot be read.
pub fn install(
    draft: &mut Draft<'_>,
    root: &Root,
    folder: &Path,
    library: &[u8],
    alone: bool,
) -> Result<(), ChangeError> {
    let places = places(root, folder)?;
    let here: Vec<&MiopenFile> = places.iter().filter(|place| !place.missing).collect();
    if here.is_empty() {
        if !alone {
            let next = "`wave32 miopen status` tells where there is one; --alone puts wave32's there all the same, for \
                        programs that need a MIOpen and have none";
            return Err(refused(folder, "there is no MIOpen in this folder", next));
        }
        return draft.edit_library(&folder.join(MIOPEN), library);
    }
    for MiopenFile { path, ours, kept, .. } in here {
        if ours.is_some() {
            // Nothing is planned where it is this very one.
            draft.edit_library(path, library)?;
            continue;
        }
        let mut magic = [0; 4];
        let file = root.open(path).map_err(ChangeError::io("read", path))?;
        let read = std::io::Read::read_exact(&mut &file, &mut magic);
        if read.is_err() || magic != *b"\x7fELF" {
            return Err(refused(path, "is no library", "install its package again"));
        }
        if let Some(stale) = kept {
            // An update of its package has replaced ours since.
            draft.remove(stale)?;
        }
        draft.replace(path, &kept_name(path), library.to_vec())?;
    }
    Ok(())
}

/// Plans to take ours out of `folder`, and to put back what was there. `away` are the files that changes of ours put out
/// of the way.
///
/// # Errors
/// None of ours there; a vendor's file that was kept and is gone; what cannot be read.
pub fn uninstall(
    draft: &mut Draft<'_>,
    root: &Root,
    folder: &Path,
    away: &BTreeSet<PathBuf>,
) -> Result<(), ChangeError> {
    let places = places(root, folder)?;
    for MiopenFile { path, .. } in places.iter().filter(|place| place.ours.is_some() && place.kept.is_none())
    {
        // What --alone installs has its own plain name, and nothing gave way to it.
        if path.file_name() != Some(OsStr::new(MIOPEN)) || away.contains(&kept_name(path)) {
            let why = format!("has taken the vendor's place, but {} is gone", kept_name(path).display());
            let next = "nothing was changed, since no MIOpen would be left: install its package again, which replaces \
                        wave32's, or delete this file by hand";
            return Err(refused(path, why, next));
        }
    }
    let (mut any, mut stale) = (false, None);
    for MiopenFile { path, ours, kept, missing } in &places {
        match (ours, kept) {
            (Some(_), None) => draft.remove(path)?,
            (_, Some(kept)) if ours.is_some() || *missing => draft.put_back(kept, path)?,
            (None, Some(kept)) => {
                stale = Some(kept);
                continue;
            }
            _ => continue,
        }
        any = true;
    }
    match places.iter().find(|place| !place.missing && place.ours.is_none()) {
        _ if any => Ok(()),
        Some(theirs) => {
            let kept = stale.map_or(String::new(), |kept| {
                format!(
                    "; an update of its package has replaced wave32's, so {} may be deleted",
                    kept.display()
                )
            });
            Err(refused(&theirs.path, "is not wave32's", format!("it stays as it is{kept}")))
        }
        None => Err(refused(
            folder,
            "there is no MIOpen in this folder",
            "`wave32 miopen status` tells where there is one",
        )),
    }
}
