//! A stand-in for the API server: objects by their path, over HTTP without TLS.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

type Objects = Arc<Mutex<HashMap<String, Value>>>;

pub(crate) struct ApiServer {
    pub(crate) port: u16,
    objects: Objects,
}

impl ApiServer {
    /// Starts a server that has the node `node-1`. Its thread ends with the test.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let objects = Objects::default();
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "uid": "node-uid"},
        });
        objects.lock().unwrap().insert("/api/v1/nodes/node-1".to_owned(), node);
        let shared = objects.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let objects = shared.clone();
                thread::spawn(move || while serve(&stream, &objects).is_some() {});
            }
        });
        Self { port, objects }
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.objects.lock().unwrap().get(path).cloned()
    }

    pub(crate) fn put_claim(&self, claim: &Value) {
        let name = claim["metadata"]["name"].as_str().unwrap();
        let path = format!("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}");
        self.objects.lock().unwrap().insert(path, claim.clone());
    }
}

/// Answers a request; `None` at the end of the connection.
fn serve(stream: &TcpStream, objects: &Objects) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = || {
        let mut text = String::new();
        reader.read_line(&mut text).ok().filter(|read| *read > 0)?;
        Some(text.trim_end().to_owned())
    };
    let request = line()?;
    let mut length = 0;
    loop {
        let header = line()?;
        if header.is_empty() {
            break;
        }
        let (name, value) = header.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut words = request.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let path = target.split('?').next()?.to_owned();
    let mut objects = objects.lock().unwrap();
    let (status, reply) = match method {
        "GET" => match objects.get(&path) {
            Some(object) => ("200 OK", object.clone()),
            None => {
                let reply = json!({
                    "apiVersion": "v1", "kind": "Status", "status": "Failure",
                    "message": format!("{path} not found"), "reason": "NotFound", "code": 404,
                });
                ("404 Not Found", reply)
            }
        },
        "POST" | "PUT" => {
            let object: Value = serde_json::from_slice(&body).ok()?;
            let name = object["metadata"]["name"].as_str()?;
            let path = if method == "POST" { format!("{path}/{name}") } else { path };
            objects.insert(path, object.clone());
            ("200 OK", object)
        }
        _ => return None,
    };
    let reply = reply.to_string();
    let length = reply.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    let mut stream = stream;
    stream.write_all((head + &reply).as_bytes()).ok()
}
