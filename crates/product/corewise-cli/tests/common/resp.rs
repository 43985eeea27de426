//! Conversations in RESP: with a server of ours, and with a redis-server beside it.

use std::time::Duration;

use super::{Client, Engine, TestServer};
use corewise_wire::resp::{ReplyReader, encode_request};

/// A server with a listener for RESP.
pub(crate) fn start(engine: Engine, options: &[&str]) -> TestServer {
    let listen = ["--resp", "127.0.0.1:0"];
    engine.with(&[&listen[..], options].concat())
}

pub(crate) fn connect(server: &TestServer) -> Client {
    Client::connect(server.resp_address())
}

/// The same, and a client of it.
pub(crate) fn start_and_connect(engine: Engine, options: &[&str]) -> (TestServer, Client) {
    let server = start(engine, options);
    let client = connect(&server);
    (server, client)
}

/// A request with these words, in multibulk form.
pub(crate) fn request<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
    let mut request = Vec::new();
    encode_request(&words, &mut request);
    request
}

/// Sends each line as one pipeline of inline requests, and expects the replies.
#[track_caller]
pub(crate) fn converse(client: &mut Client, lines: &[(&str, &str)]) {
    for (line, reply) in lines {
        client.ask(format!("{line}\r\n"), reply);
    }
}

/// The hits and misses of the keyspace that `INFO` tells, to a client of RESP2.
pub(crate) fn hits_and_misses(client: &mut Client) -> [u64; 2] {
    client.send(b"info stats\r\n");
    let text = String::from_utf8(read_element(client)).expect("text");
    ["keyspace_hits:", "keyspace_misses:"].map(|name| {
        let mut lines = text.lines();
        let number = lines.find_map(|line| line.strip_prefix(name));
        number.expect(name).parse().expect("a number")
    })
}

/// Reads the next line of a reply, with the bulk or verbatim string that it announces.
pub(crate) fn read_element(client: &mut Client) -> Vec<u8> {
    let mut bytes = client.read_until(b"\r\n");
    if matches!(bytes[0], b'$' | b'=') && bytes != b"$-1\r\n" {
        let len = String::from_utf8_lossy(&bytes[1..bytes.len() - 2]).parse::<usize>();
        bytes.extend(client.bytes_slowly(len.unwrap() + 2, Duration::ZERO));
    }
    bytes
}

/// Reads the elements of a reply.
pub(crate) fn read_reply(client: &mut Client) -> Vec<Vec<u8>> {
    let mut reader = ReplyReader::default();
    let mut elements = Vec::new();
    while elements.is_empty() || !reader.is_complete() {
        let bytes = read_element(client);
        let (consumed, _) = reader.next(&bytes).unwrap().expect("a whole value");
        assert_eq!(consumed, bytes.len());
        elements.push(bytes);
    }
    elements
}

/// A command as the server describes it.
pub(crate) struct CommandInfo {
    pub(crate) name: String,
    /// The number of elements of its shortest request.
    pub(crate) elements: i64,
    /// Positions of the first key and of the last (from the end, if negative), and their distance;
    /// 0 if there is none.
    pub(crate) keys: [i64; 3],
}

/// The commands of a server, without their subcommands.
pub(crate) fn commands(client: &mut Client) -> Vec<CommandInfo> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    client.send(b"command list\r\n");
    let names = read_reply(client).into_iter().skip(1);
    let names: Vec<String> = names
        .map(|name| text(&name).lines().nth(1).expect("a name").to_owned())
        .filter(|name| !name.contains('|'))
        .collect();
    let mut info = |name: String| {
        client.send(format!("command info {name}\r\n").as_bytes());
        let reply = read_reply(client);
        let number = |at: usize| {
            text(&reply[at])[1..]
                .trim()
                .parse::<i64>()
                .expect("a number")
        };
        // The reply, the command, its name, its arity, and the number of its flags.
        let flags = number(4) as usize;
        CommandInfo {
            name,
            elements: number(3).abs(),
            keys: [5, 6, 7].map(|at| number(at + flags)),
        }
    };
    names.into_iter().map(&mut info).collect()
}

impl CommandInfo {
    pub(crate) fn has_keys(&self) -> bool {
        let has_channels = ["spublish", "ssubscribe", "sunsubscribe"].contains(&&*self.name);
        self.keys[0] > 0 && !has_channels
    }

    /// Whether Redis 7 does not have it.
    pub(crate) fn is_newer(&self) -> bool {
        ["delex", "delifeq"].contains(&&*self.name) || self.name.starts_with("cf.")
    }

    /// Its shortest request, with these keys in turn. All other arguments are 1.
    pub(crate) fn request(&self, keys: &[&str]) -> String {
        let [first, last, step] = self.keys;
        let last = if last < 0 { self.elements + last } else { last };
        let mut keys = keys.iter().cycle();
        let words = (1..self.elements).map(|at| {
            let is_key =
                self.has_keys() && (first..=last).contains(&at) && (at - first) % step == 0;
            if is_key {
                keys.next().expect("a key")
            } else {
                "1"
            }
        });
        let words: Vec<&str> = std::iter::once(&*self.name).chain(words).collect();
        words.join(" ")
    }
}

/// Requests of all commands of Redis 7 whose arguments name keys, but for `WATCH`, on the keys of
/// these pairs.
pub(crate) fn requests_on_keys(client: &mut Client, pairs: &[[&str; 2]]) -> Vec<String> {
    let mut requests = Vec::new();
    for command in commands(client) {
        if !command.has_keys() || command.is_newer() || command.name == "watch" {
            continue;
        }
        for keys in pairs {
            let request = command.request(keys);
            if !requests.contains(&request) {
                requests.push(request);
            }
        }
    }
    requests
}

/// The names of the commands of Redis 7 whose shortest request has a key and nothing else.
pub(crate) fn commands_on_one_key(client: &mut Client) -> Vec<String> {
    let mut commands = commands(client);
    commands.retain(|one| {
        one.has_keys() && !one.is_newer() && one.elements == 2 && one.name != "watch"
    });
    commands.into_iter().map(|command| command.name).collect()
}
