//! Wireshark's interface to programs that capture (extcap(4)).

use std::path::PathBuf;

use dray_capture::ask_ports;
use dray_daemon::{Client, default_control};
use dray_switch::config::CONTROL;

use super::filter;
use crate::common::{Failure, usage};

/// Options that Wireshark gives.
#[derive(clap::Args)]
pub(super) struct Options {
    #[arg(long, hide = true)]
    extcap_interfaces: bool,
    #[arg(long, hide = true, value_name = "VERSION", num_args = 0..=1, default_missing_value = "")]
    extcap_version: Option<String>,
    #[arg(long, hide = true, value_name = "NAME")]
    extcap_interface: Option<String>,
    #[arg(long, hide = true)]
    extcap_dlts: bool,
    #[arg(long, hide = true)]
    extcap_config: bool,
    #[arg(long, hide = true, value_name = "EXPRESSION")]
    extcap_capture_filter: Option<String>,
    #[arg(long, hide = true)]
    capture: bool,
    #[arg(long, hide = true, value_name = "PATH")]
    fifo: Option<PathBuf>,
}

/// Request of Wireshark.
pub(super) enum Request {
    Print(String),
    Capture { client: Client, ports: Vec<String>, fifo: PathBuf, filter: Option<String> },
}

/// A program whose ports can be captured.
struct Program {
    /// Name of the interface with all ports.
    interface: &'static str,
    command: &'static str,
    control: &'static str,
}

const PROGRAMS: [Program; 2] = [
    Program { interface: "dray-switch", command: "dray switch", control: CONTROL },
    Program { interface: "dray-upf", command: "dray upf", control: dray_upf::api::CONTROL },
];

const DLTS: &str = "dlt {number=1}{name=EN10MB}{display=Ethernet}\n";

const CONFIG: &str = "\
arg {number=0}{call=--direction}{display=Direction}{type=selector}\
{tooltip=Only what the port receives, or sends}
value {arg=0}{value=both}{display=Both}{default=true}
value {arg=0}{value=in}{display=What the port receives}{default=false}
value {arg=0}{value=out}{display=What the port sends}{default=false}
arg {number=1}{call=--drops}{display=Only dropped frames}{type=boolflag}{default=false}\
{tooltip=Each with the reason as a comment}
arg {number=2}{call=--snaplen}{display=Bytes of each frame}{type=unsigned}{default=0}\
{tooltip=0: all}
";

impl Program {
    fn client(&self) -> Client {
        Client::new(&default_control(self.control), self.command)
    }
}

impl Options {
    /// Returns what Wireshark asks for; `None` if it does not.
    pub(super) fn request(self) -> Result<Option<Request>, Failure> {
        if self.extcap_interfaces {
            return Ok(Some(Request::Print(interfaces())));
        }
        let Some(interface) = self.extcap_interface else {
            return match (self.extcap_dlts || self.extcap_config || self.capture, self.fifo) {
                (false, None) => Ok(None),
                _ => Err(usage!("give --extcap-interface as well")),
            };
        };
        let (name, port) = interface.split_once(':').unwrap_or((&interface, ""));
        let Some(program) = PROGRAMS.iter().find(|program| program.interface == name) else {
            return Err(usage!(
                "--extcap-interface {interface:?}: give dray-switch or dray-upf, or of a port \
                 dray-switch:NAME"
            ));
        };
        let print = |text: &str| Ok(Some(Request::Print(text.to_owned())));
        if self.extcap_dlts {
            return print(DLTS);
        }
        if self.extcap_config {
            return print(CONFIG);
        }
        let filter = self.extcap_capture_filter.filter(|filter| !filter.trim().is_empty());
        match (self.capture, self.fifo) {
            (true, Some(fifo)) => {
                let ports = if port.is_empty() { Vec::new() } else { vec![port.to_owned()] };
                Ok(Some(Request::Capture { client: program.client(), ports, fifo, filter }))
            }
            (true, None) => Err(usage!("--capture: give --fifo as well")),
            // Wireshark checks a filter: it is right if nothing is printed.
            (false, _) => match filter.as_deref().map(filter::compile) {
                Some(Err(Failure::Usage(error) | Failure::Failed(error))) => {
                    print(&format!("{error}\n"))
                }
                _ => print(""),
            },
        }
    }
}

/// Returns an interface for each running program, and one for each of its ports.
fn interfaces() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!("extcap {{version={version}}}{{display=dray}}\n");
    for program in &PROGRAMS {
        let Program { interface, command, .. } = program;
        // The program does not run.
        let Ok(ports) = ask_ports(&program.client()) else { continue };
        text += &format!("interface {{value={interface}}}{{display={command}: all ports}}\n");
        for port in ports.iter().filter(|port| !port.is_empty()) {
            text +=
                &format!("interface {{value={interface}:{port}}}{{display={command}: {port}}}\n");
        }
    }
    text
}
