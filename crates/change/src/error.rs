//! What can go wrong while files are changed; every text says what to do next.

use std::io;
use std::path::PathBuf;

/// Why files were not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The system refused; everything that was done before was taken back.
    #[error("cannot {doing} {}: {reason}; nothing was changed{}", .path.display(), advice(.reason))]
    Io {
        /// What was being done, as a verb.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// Taking back what was done failed as well. The journal is kept.
    #[error(
        "{cause}; and taking it back stopped at {}: {reason}; once that is put right, run `wave32 undo` to finish \
         (nothing is lost: the old files are under {})", .path.display(), .store.display()
    )]
    Stuck {
        /// Why the change failed.
        cause: String,
        /// What cannot be put back now.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
        /// Where the old contents are.
        store: PathBuf,
    },
    /// A file is not as it was when the plan was made.
    #[error("{} changed in the meantime; nothing was written, run the command again", .0.display())]
    Changed(PathBuf),
    /// The plan that the user agreed to is no longer the plan.
    #[error("the files changed while you were asked; nothing was written, run the command again")]
    Outdated,
    /// The user's edit and ours touch the same lines.
    #[error(
        "{} was edited or deleted since, by you or by a later change, in the very lines to restore; nothing was \
         changed. Put it right by hand (as it was: {}), or run `wave32 undo --force`, which restores it and keeps \
         your version beside it", .path.display(), .before.display()
    )]
    Conflict {
        /// The file.
        path: PathBuf,
        /// A copy as it was before we touched it.
        before: PathBuf,
    },
    /// Another process is at it.
    #[error(
        "another wave32{holder} has been changing files for {seconds} s; wait for it to end and run this again"
    )]
    Locked {
        /// Which one, if it says so.
        holder: String,
        /// How long we waited.
        seconds: u64,
    },
    /// What we would have to change is not ours to change.
    #[error("{}: {why}; {next}", .path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
        /// What the user can do.
        next: String,
    },
    /// What others could have written, and would be believed.
    #[error("{} {why}, so what is there may be another's doing; nothing was changed. {next}", .path.display())]
    Untrusted {
        /// The file or folder.
        path: PathBuf,
        /// Why it is not trusted.
        why: String,
        /// What the user can do.
        next: String,
    },
    /// The journal is not as we wrote it.
    #[error("{}: {why}; keep that folder, it holds your old files, and put them back by hand", .path.display())]
    Journal {
        /// Where it lies.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Nothing with this number.
    #[error("there is no change number {0}; `wave32 undo --list` shows them")]
    NoSuchChange(u64),
}

impl ChangeError {
    /// For `map_err`: what was being done, to what.
    pub(crate) fn io(doing: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        move |reason| Self::Io { doing, path: path.into(), reason }
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space and run the command again"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; run the command as the user that may write there, or choose another place"
        }
        io::ErrorKind::FileTooLarge => "; raise the limit (`ulimit -f unlimited`) and run the command again",
        _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            "; links lead in a circle, or a folder on the way has become a link: put that right, or change it by hand"
        }
        _ => "",
    }
}
