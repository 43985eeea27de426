//! A small server of all protocols that can be told to lie.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use corewise_load::config::{Address, Protocol, Target};

/// What the server does wrong, once, at its `AT`-th get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code)] // each test program uses some
pub(crate) enum Lie {
    Nothing,
    WrongByte,
    ShortValue,
    WrongKey,
    DropReply,
    ExtraReply,
    Refuse,
    HangUp,
    /// Refuses every tenth set, from the start.
    NoMemory,
}

/// The get that is answered wrongly.
const AT: u64 = 500;

struct Shared {
    store: Mutex<HashMap<String, Vec<u8>>>,
    gets: AtomicU64,
    sets: AtomicU64,
    lie: Lie,
}

/// Starts a server; it ends with the test program.
pub(crate) fn start(protocol: Protocol, lie: Lie) -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = Address::Tcp(listener.local_addr().expect("bound"));
    let shared = Arc::new(Shared {
        store: Mutex::default(),
        gets: AtomicU64::new(0),
        sets: AtomicU64::new(0),
        lie,
    });
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || serve(stream, protocol, &shared));
        }
    });
    Target {
        address,
        protocol,
        pid: Some(std::process::id()),
    }
}

/// Serves one connection until it fails.
fn serve(stream: TcpStream, protocol: Protocol, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut out = stream.try_clone()?;
    let mut input = BufReader::new(stream);
    let mut reply = Vec::new();
    loop {
        match protocol {
            Protocol::Resp => resp(&mut input, shared, &mut reply)?,
            Protocol::Cphash => cphash(&mut input, shared, &mut reply)?,
            _ => lines(&mut input, protocol, shared, &mut reply)?,
        }
        if input.buffer().is_empty() && !reply.is_empty() {
            out.write_all(&reply)?;
            reply.clear();
        }
    }
}

fn line(input: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut text = String::new();
    if input.read_line(&mut text)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(text.trim_end().to_string())
}

fn data(input: &mut BufReader<TcpStream>, len: &str) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len.parse::<usize>().expect("a length") + 2];
    input.read_exact(&mut bytes)?;
    bytes.truncate(bytes.len() - 2);
    Ok(bytes)
}

/// The value of `key`, possibly corrupted, and whether to lie now.
fn fetch(shared: &Shared, key: &str) -> (Option<Vec<u8>>, bool) {
    let now = shared.gets.fetch_add(1, Ordering::Relaxed) == AT;
    let mut value = shared.store.lock().expect("no panic").get(key).cloned();
    match (now, shared.lie, &mut value) {
        (true, Lie::WrongByte, Some(value)) => value[9] ^= 1,
        (true, Lie::ShortValue, Some(value)) => value.truncate(5),
        _ => {}
    }
    (value, now)
}

/// Stores a value. Returns whether there was memory for it.
fn store(shared: &Shared, key: &str, value: Vec<u8>) -> bool {
    let turn = shared.sets.fetch_add(1, Ordering::Relaxed);
    if shared.lie == Lie::NoMemory && turn.is_multiple_of(10) {
        return false;
    }
    let mut map = shared.store.lock().expect("no panic");
    map.insert(key.into(), value);
    true
}

/// Executes one command of the text or the meta protocol.
fn lines(
    input: &mut BufReader<TcpStream>,
    protocol: Protocol,
    shared: &Shared,
    reply: &mut Vec<u8>,
) -> io::Result<()> {
    let command = line(input)?;
    let words: Vec<&str> = command.split(' ').collect();
    match words[0] {
        "version" => reply.extend_from_slice(b"VERSION fake 1\r\n"),
        "stats" => reply.extend_from_slice(b"STAT threads 1\r\nEND\r\n"),
        "mn" => reply.extend_from_slice(b"MN\r\n"),
        "set" | "ms" => {
            let value = data(input, words[if words[0] == "set" { 4 } else { 2 }])?;
            let done: &[u8] = match words[0] {
                _ if !store(shared, words[1], value) => {
                    b"SERVER_ERROR out of memory storing object\r\n"
                }
                "set" => b"STORED\r\n",
                _ => b"HD\r\n",
            };
            reply.extend_from_slice(done);
        }
        _ if protocol == Protocol::Meta => meta_get(&words, shared, reply),
        _ => text_get(&words, shared, reply)?,
    }
    Ok(())
}

fn meta_get(words: &[&str], shared: &Shared, reply: &mut Vec<u8>) {
    let quiet = words.contains(&"q");
    match fetch(shared, words[1]).0 {
        Some(value) => {
            let name = if quiet {
                format!(" k{}", words[1])
            } else {
                String::new()
            };
            reply.extend_from_slice(format!("VA {}{name}\r\n", value.len()).as_bytes());
            reply.extend_from_slice(&value);
            reply.extend_from_slice(b"\r\n");
        }
        None if quiet => {}
        None => reply.extend_from_slice(b"EN\r\n"),
    }
}

fn text_get(words: &[&str], shared: &Shared, reply: &mut Vec<u8>) -> io::Result<()> {
    for key in &words[1..] {
        let (value, lie) = fetch(shared, key);
        let mut name = key.to_string();
        match shared.lie {
            Lie::DropReply if lie => return Ok(()),
            Lie::ExtraReply if lie => reply.extend_from_slice(b"END\r\n"),
            Lie::Refuse if lie => {
                reply.extend_from_slice(b"SERVER_ERROR out of memory\r\n");
                return Ok(());
            }
            Lie::HangUp if lie => return Err(io::ErrorKind::Other.into()),
            Lie::WrongKey if lie => name = "key:99999999".into(),
            _ => {}
        }
        if let Some(value) = value {
            reply.extend_from_slice(format!("VALUE {name} 0 {}\r\n", value.len()).as_bytes());
            reply.extend_from_slice(&value);
            reply.extend_from_slice(b"\r\n");
        }
    }
    reply.extend_from_slice(b"END\r\n");
    Ok(())
}

/// Executes one LOOKUP or INSERT.
fn cphash(
    input: &mut BufReader<TcpStream>,
    shared: &Shared,
    reply: &mut Vec<u8>,
) -> io::Result<()> {
    let mut header = [0; 16];
    input.read_exact(&mut header)?;
    let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four"));
    let key = format!("{:?}", &header[8..]);
    assert!(header[15] < 16, "a key of 60 bits");
    if number(0) == 2 {
        let mut value = vec![0; number(4) as usize];
        input.read_exact(&mut value)?;
        store(shared, &key, value);
        return Ok(());
    }
    assert_eq!((number(0), number(4)), (1, 0), "a LOOKUP");
    let (value, lie) = fetch(shared, &key);
    match shared.lie {
        Lie::DropReply if lie => return Ok(()),
        Lie::ExtraReply if lie => reply.extend_from_slice(&[0; 4]),
        Lie::HangUp if lie => return Err(io::ErrorKind::Other.into()),
        Lie::Refuse if lie => reply.extend_from_slice(b"ERROR"),
        _ => {}
    }
    let value = value.unwrap_or_default();
    reply.extend_from_slice(&(value.len() as u32).to_le_bytes());
    reply.extend_from_slice(&value);
    Ok(())
}

/// Executes one Redis command.
fn resp(input: &mut BufReader<TcpStream>, shared: &Shared, reply: &mut Vec<u8>) -> io::Result<()> {
    let count: usize = line(input)?[1..].parse().expect("an array");
    let mut words = Vec::new();
    for _ in 0..count {
        let len = line(input)?;
        words.push(String::from_utf8(data(input, &len[1..])?).expect("printable"));
    }
    if words[0] == "SET" {
        let done: &[u8] = if store(shared, &words[1], words[2].clone().into_bytes()) {
            b"+OK\r\n"
        } else {
            b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
        };
        reply.extend_from_slice(done);
        return Ok(());
    }
    match words[0].as_str() {
        "INFO" => {
            reply.extend_from_slice(b"-ERR unknown command\r\n");
            return Ok(());
        }
        "MGET" => reply.extend_from_slice(format!("*{}\r\n", count - 1).as_bytes()),
        _ => {}
    }
    for key in &words[1..] {
        match fetch(shared, key).0 {
            Some(value) => {
                reply.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
                reply.extend_from_slice(&value);
                reply.extend_from_slice(b"\r\n");
            }
            None => reply.extend_from_slice(b"$-1\r\n"),
        }
    }
    Ok(())
}
