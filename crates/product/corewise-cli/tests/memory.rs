//! Resident memory under the loads that take most of it beside the items.
//!
//! The bound is that of `docs/OPERATING.md`. A program without optimization is larger, so what an
//! idle server takes is replaced by what it is in an optimized one.

use crate::common;

use std::io::Write as _;
use std::net::TcpStream;
use std::thread;

use common::{Client, Kind, TestServer, wait_until};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Resident memory of an optimized server that is idle. Most of it is the program.
const IDLE_KIB: u64 = 7_400;
/// What the stacks of the loops and the main thread take more without optimization.
const STACKS_KIB: u64 = 160;
const MIB: u64 = 16;

/// Runs `load` on a new server, and compares the resident set with the bound while the clients that
/// it returns are still connected.
fn stays_below(limit_mib: u64, load: fn(&TestServer) -> Vec<Client>) {
    stays_below_with(limit_mib, &[], load);
}

fn stays_below_with(limit_mib: u64, options: &[&str], load: fn(&TestServer) -> Vec<Client>) {
    if Kind::under_test() != Kind::Corewise {
        return;
    }
    let memory = limit_mib.to_string();
    let always = [
        "--engine",
        "relativistic",
        "-m",
        &memory,
        "-t",
        "4",
        "--resp",
        "127.0.0.1:0",
    ];
    let mut server = TestServer::with(&[&always, options].concat());
    let idle = anonymous_kib(&server);
    let _clients = load(&server);
    let bound = limit_mib * 1024 * 105 / 100 + 8 * 1024;
    let resident = || anonymous_kib(&server) - idle + IDLE_KIB - STACKS_KIB;
    // Items give way to buffers some milliseconds later.
    wait_until(&format!("at most {bound} KiB are resident"), || {
        resident() <= bound
    });
    println!("{} KiB, bound {bound} KiB", resident());
    server.assert_well();
}

fn anonymous_kib(server: &TestServer) -> u64 {
    server.rss_kib() - server.file_rss_kib()
}

/// Fills the cache with values of 10,000 bytes: `k0`, `k1`, and so on. Returns how many.
fn fill(server: &TestServer) -> usize {
    let (mut client, count) = (server.connect(), MIB as usize * 110);
    let value = "v".repeat(10_000);
    for key in 0..count {
        client.ask(set(&format!("k{key}"), &value), "STORED\r\n");
    }
    count
}

fn set(key: &str, value: &str) -> String {
    format!("set {key} 0 0 {}\r\n{value}\r\n", value.len())
}

/// Adds members of 20 bytes to sets, one to each in turn, so that the sets share their pages; then
/// deletes half of the sets, and stores strings of twice the limit.
fn replace_half_of_the_sets(server: &TestServer) {
    const MEMBERS: usize = 130;
    let sets = (MIB as usize * 1024 * 1024) / 11_500;
    let mut client = Client::connect(server.resp_address());
    let mut ask = |requests: Vec<String>, reply: &str| {
        client.send(requests.concat().as_bytes());
        client.expect(reply.repeat(requests.len()));
    };
    for member in 0..MEMBERS {
        let add = |key| format!("ZADD set{key} {member} member{member:014}\r\n");
        for first in (0..sets).step_by(200) {
            ask((first..sets.min(first + 200)).map(add).collect(), ":1\r\n");
        }
    }
    let deleted = (0..sets).step_by(2).map(|key| format!("DEL set{key}\r\n"));
    ask(deleted.collect(), ":1\r\n");
    let value = "v".repeat(1_000);
    for first in (0..2 * MIB as usize * 1024).step_by(64) {
        let set = |number| format!("SET string{number} {value}\r\n");
        ask((first..first + 64).map(set).collect(), "+OK\r\n");
    }
}

#[test]
fn strings_take_the_place_of_half_of_the_sets() {
    // Whether a huge page is resident for a few segments depends on what the system has at hand.
    stays_below_with(MIB, &["--huge-pages=false"], |server| {
        replace_half_of_the_sets(server);
        Vec::new()
    });
}

/// Sends as much of `bytes` as the server takes without being read.
fn send_some(mut socket: &TcpStream, bytes: &[u8]) {
    socket.set_nonblocking(true).unwrap();
    let _ = socket.write(bytes);
    socket.set_nonblocking(false).unwrap();
}

#[test]
fn clients_pipeline_values_in_large_batches() {
    stays_below(MIB, |server| {
        thread::scope(|scope| {
            for client in 0..8 {
                scope.spawn(move || {
                    let mut clients: Vec<Client> = (0..8).map(|_| server.connect()).collect();
                    for round in 0..6 {
                        let value = "v".repeat(11_000 + round * 1_000);
                        let count = (256 << 10) / value.len();
                        for (i, connection) in clients.iter_mut().enumerate() {
                            let keys = (0..count).map(|n| format!("{client}.{i}.{round}.{n}"));
                            let batch: String = keys.map(|key| set(&key, &value)).collect();
                            connection.send(batch.as_bytes());
                        }
                        for connection in &mut clients {
                            connection.expect("STORED\r\n".repeat(count));
                        }
                    }
                });
            }
        });
        Vec::new()
    });
}

#[test]
fn clients_move_values_of_a_sixteenth_of_the_limit() {
    stays_below(MIB, |server| {
        thread::scope(|scope| {
            for client in 0..8 {
                scope.spawn(move || {
                    let mut connection = server.connect();
                    let value = "v".repeat(1_000_000);
                    for round in 0..20 {
                        connection.ask(set(&format!("{client}.{round}"), &value), "STORED\r\n");
                    }
                });
            }
        });
        Vec::new()
    });
}

#[test]
fn clients_leave_requests_unfinished() {
    stays_below(MIB, |server| {
        fill(server);
        let mut clients: Vec<Client> = (0..100).map(|_| server.connect()).collect();
        for part in 0..15 {
            for client in &mut clients {
                let line = " k".repeat(1_000);
                client.send(if part == 0 { b"get" } else { b"" });
                client.send(line.as_bytes());
            }
        }
        clients
    });
}

#[test]
fn clients_leave_replies_unread() {
    stays_below(MIB, |server| {
        let count = fill(server);
        let clients: Vec<Client> = (0..60).map(|_| server.connect()).collect();
        for (index, client) in clients.iter().enumerate() {
            let keys = (0..50).map(|i| format!(" k{}", (index * 50 + i * 7) % count));
            let line = format!("get{}\r\n", keys.collect::<String>());
            send_some(&client.socket(), line.repeat(20).as_bytes());
        }
        clients
    });
}

#[test]
fn clients_overwrite_with_changing_sizes() {
    stays_below(MIB, |server| {
        thread::scope(|scope| {
            for client in 0..3 {
                scope.spawn(move || {
                    let mut rng = Xoshiro256PlusPlus::seed_from_u64(client);
                    let mut connection = server.connect();
                    for _ in 0..60 {
                        let mut batch = String::new();
                        for _ in 0..20 {
                            let length = 2f64.powf(rng.random_range(3.0..17.0)) as usize;
                            let key = format!("k{}", rng.random_range(0..320));
                            batch.push_str(&set(&key, &"v".repeat(length)));
                        }
                        connection.send(batch.as_bytes());
                        connection.expect("STORED\r\n".repeat(20));
                    }
                });
            }
        });
        Vec::new()
    });
}
