//! `dray lab top`: rates at the ends of a lab's links, on a terminal or as a page in a browser.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use anyhow::Context;
use dray_daemon::{Limits, MetricsAddress, Request, Response, Server};
use dray_datapath::{Cancel, lock};
use dray_lab::standing::{ContainerState, LabState, PortState};
use dray_lab::topology::{self, Topology};
use dray_lab::{placement, standing};
use dray_switch::PortStatus;
use dray_switch::client::Client;
use dray_switch::config::CONTROL;

use super::find::find;
use crate::common::{Failure, cancel_on_signals};
use crate::top::Show;
use crate::top::model::{About, Port, Rates, Reading, Traffic};

/// The page; the picture and the lab's name are put into it.
const PAGE: &str = include_str!("top.html");

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Name of the lab; not needed if one lab is up.
    lab: Option<String>,
    /// Serve a page with the picture of the lab and the rates of its links at this TCP address,
    /// such as 127.0.0.1:8080, until Ctrl-C. Every host that reaches the address can read it.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["once", "json"])]
    web: Option<MetricsAddress>,
    #[command(flatten)]
    show: Show,
}

pub(super) fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { lab, web, show } = arguments;
    if web.is_none() {
        show.check()?;
    }
    let name = find(lab.as_deref())?.name().to_owned();
    let first = read(&name).map_err(anyhow::Error::msg)?;
    match web {
        None => show.run(move || read(&name), first),
        Some(address) => serve(&name, first, address, &show),
    }
}

/// Returns the state of the lab `name`.
fn state(name: &str) -> Result<LabState, String> {
    let lab = standing::find(Some(name)).map_err(|error| error.to_string())?;
    lab.state().map_err(|error| error.to_string())
}

/// Returns what the ends of the lab's links have counted.
fn read(name: &str) -> Result<Reading, String> {
    let state = state(name)?;
    let containers = &state.containers;
    // The switch of links counts frames where containers have no interface.
    let switch = containers.first().map(|host| host.control.join(file_name(CONTROL)));
    let switch = switch.filter(|socket| socket.exists());
    let switched = switch.and_then(|socket| Client::new(&socket).ports().ok()).unwrap_or_default();
    let ends = containers
        .iter()
        .flat_map(|container| container.ports.iter().map(move |port| (container, port)));
    let ports: Vec<_> = ends.map(|(container, port)| end(container, port, &switched)).collect();
    let running = containers.iter().filter(|container| container.running).count();
    Ok(Reading {
        at: Instant::now(),
        program: "lab",
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_s: None,
        about: format!(
            "{name}: {}, {}",
            state.file,
            dray_text::count(running, "running container")
        ),
        workers: Vec::new(),
        ports,
    })
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns what an end of a link has counted, as its container sees it.
fn end(container: &ContainerState, port: &PortState, switched: &[PortStatus]) -> Port {
    let mut end = Port {
        about: About {
            name: key(&container.name, &port.name),
            uri: format!("{} {}", port.link, port.kind),
            state: match port.running {
                Some(false) => "down".to_owned(),
                _ if !container.running => "ended".to_owned(),
                _ => "running".to_owned(),
            },
            settings: [Some(port.mac.clone()), port.address.clone()]
                .into_iter()
                .flatten()
                .collect(),
            ..About::default()
        },
        ..Port::default()
    };
    let is_of = |other: &&PortStatus| {
        let socket = other.config.uri.socket_path().and_then(|path| path.file_name());
        socket.is_some_and(|name| name == file_name(&port.name))
    };
    if let Some(counted) = port.traffic {
        end.rx = Traffic { frames: counted.rx_packets, bytes: counted.rx_bytes };
        end.tx = Traffic { frames: counted.tx_packets, bytes: counted.tx_bytes };
        end.drops.insert("tx_dropped", counted.tx_dropped);
    } else if let Some(other) = switched.iter().find(is_of) {
        // The switch sends what the container receives.
        let counters = &other.counters;
        end.rx = Traffic { frames: counters.tx_frames, bytes: counters.tx_bytes };
        end.tx = Traffic { frames: counters.rx_frames, bytes: counters.rx_bytes };
        end.drops = counters.drops.iter().map(|(why, many)| (why.name(), many)).collect();
        end.about.receive_ring = other.transmit_ring;
        end.about.transmit_ring = other.receive_ring;
        end.about.state = other.state.name().to_owned();
        end.about.last_disconnect.clone_from(&other.last_disconnect);
        end.about.last_disconnect_at = other.last_disconnect_at;
    }
    end
}

/// Returns the name of an end, which the page's picture has too.
fn key(container: &str, port: &str) -> String {
    format!("{container}:{}", file_name(port))
}

/// Latest rates, or why there are none.
struct Latest {
    reading: Reading,
    rates: Result<Rates, String>,
}

/// Serves the page until it is cancelled.
fn serve(name: &str, first: Reading, address: MetricsAddress, show: &Show) -> Result<(), Failure> {
    let cancel = cancel_on_signals()?;
    let listener = TcpListener::bind(address.0).with_context(|| format!("--web {}", address.0))?;
    let at = listener.local_addr()?;
    let rates = Ok(first.since(None));
    let latest = Arc::new(Mutex::new(Latest { reading: first, rates }));
    let (name_of, of_server) = (name.to_owned(), latest.clone());
    let server = Server::start(listener, Limits::for_network(), move |request| {
        answer(&name_of, &of_server, &request)
    });
    eprintln!("dray lab top: http://{at}/ until Ctrl-C");
    let mut due = Instant::now() + show.interval;
    while cancel.check().is_ok() {
        if Instant::now() < due {
            thread::sleep(Cancel::INTERVAL);
            continue;
        }
        due += show.interval;
        let reading = read(name);
        let mut latest = lock(&latest);
        match reading {
            Err(why) => latest.rates = Err(why),
            Ok(reading) => {
                latest.rates = Ok(reading.since(Some(&latest.reading)));
                latest.reading = reading;
            }
        }
    }
    drop(server);
    Ok(())
}

fn answer(name: &str, latest: &Mutex<Latest>, request: &Request) -> Response {
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/") => match page(name) {
            Ok(page) => Response::text(200, "text/html; charset=utf-8", page),
            Err(why) => Response::text(503, "text/plain; charset=utf-8", why),
        },
        ("GET", "/rates.json") => match &lock(latest).rates {
            Ok(rates) => Response::json(200, rates),
            Err(why) => Response::json(503, &serde_json::json!({ "error": why })),
        },
        _ => Response::text(404, "text/plain", "give / or /rates.json\n".to_owned()),
    }
}

/// Returns the page with the picture of the lab as it is now.
fn page(name: &str) -> Result<String, String> {
    let state = state(name)?;
    let topology = Topology::read(&state.file, &state.text, &placement::reachable(), &|_| Ok(()))
        .map_err(|error| error.to_string())?;
    // The keeper knows the names of ports without interface.
    let end = |container: &str, port: usize| {
        let container = state.containers.iter().find(|it| it.name == container);
        let port = container.and_then(|it| it.ports.get(port).map(|port| &port.name));
        port.and_then(|port| Some(key(&container?.name, port))).unwrap_or_default()
    };
    let svg = topology::draw_live(&Topology { name: name.to_owned(), ..topology }, &end);
    let name = name.replace('&', "&amp;").replace('<', "&lt;");
    Ok(PAGE.replace("{{name}}", &name).replace("{{picture}}", &svg))
}
