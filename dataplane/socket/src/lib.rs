//! Unix sockets of the ports and of the control interface: their [names](SocketName),
//! [rights](Access), [binding](BoundSocket) and removal; and files at [places](Place) to which no
//! other user can redirect a path: directories, [locks](Lock).
#![forbid(unsafe_code)]

mod access;
mod bound;
mod lock;
mod name;
mod own;
mod place;
mod user;
mod walk;

pub use access::{Access, Account, read_accounts};
pub use bound::{
    BoundSocket, SocketFile, address_of, borrow_files, borrows_files, check_abstract, folder_of,
    may_make_folder, missing_folder,
};
pub use lock::Lock;
pub use name::SocketName;
pub use own::{Own, refuse_own_sockets};
pub use place::{Place, find_own_directory, own_directory, path_of};
pub use user::{User, share_folder};

/// Default directory of dray's sockets.
pub const FOLDER: &str = "/run/dray";

/// Returns a new directory that no other user may change. By default it would have the mode of the
/// umask, which another test that binds a socket changes for a moment.
#[cfg(test)]
fn new_folder() -> tempfile::TempDir {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    tempfile::Builder::new().permissions(mode).tempdir().expect("a directory")
}
