//! Captures: copies of the frames that data threads move, for a local user.
//!
//! * [`Tap`]: where a data thread shows its frames. It costs one branch per batch while no capture
//!   runs.
//! * [`tapped`]: a port whose frames a tap shows.
//! * [`Captures`]: starts and ends captures at the request of clients of the control socket.
//! * [`Session`]: such a client, which receives the copies.
//! * [`filter`]: programs of the Berkeley Packet Filter, which a data thread runs on each frame.
//! * [`pcapng`]: the file format.
//!
//! Each data thread copies the frames that a capture selects into a [ring](dray_ring::records) of
//! shared memory, which the client reads. A frame without room there is counted as missed:
//! no data thread waits for a client. The capture ends with the client's connection.
#![forbid(unsafe_code)]

mod captures;
pub mod filter;
pub mod pcapng;
mod port;
mod record;
mod session;
mod tap;

pub use captures::{CAPTURES_MAX, CaptureRequest, Captures, Direction, PATH, Reply};
pub use port::tapped;
pub use record::{Kind, Record};
pub use session::{Counts, Session, SessionError, ask_ports};
pub use tap::{Side, Tap};
