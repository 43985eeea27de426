//! What operators do to a running server: signals, system limits, and files that it leaves.

use crate::common;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Client, TestServer, wait_until};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

fn signal(server: &TestServer, signal: Signal) {
    kill_process(pid(server), signal).unwrap();
}

fn pid(server: &TestServer) -> Pid {
    Pid::from_raw(server.pid() as i32).unwrap()
}

fn stats(client: &mut Client) -> HashMap<String, String> {
    let text = client.stats("");
    let stat = |line: &str| {
        let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
        Some((name.to_owned(), value.to_owned()))
    };
    text.lines().filter_map(stat).collect()
}

/// Whether a new connection is admitted with these credentials.
fn is_admitted(server: &TestServer, credentials: &str) -> bool {
    let mut client = server.connect();
    client.send(format!("set auth 0 0 {}\r\n{credentials}\r\n", credentials.len()).as_bytes());
    client.line() == "STORED"
}

#[test]
fn a_hangup_is_survived_and_the_users_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    std::fs::write(&users, "ann:one\n").unwrap();
    let mut server = TestServer::with(&["-Y", users.to_str().unwrap()]);
    let mut inside = server.connect();
    inside.ask("set auth 0 0 7\r\nann one\r\n", "STORED\r\n");
    std::fs::write(&users, "bob:two\n").unwrap();
    assert!(!is_admitted(&server, "bob two"));
    signal(&server, Signal::HUP);
    wait_until("the users are read again", || {
        is_admitted(&server, "bob two")
    });
    assert!(!is_admitted(&server, "ann one"));
    inside.ask("mn\r\n", "MN\r\n");
    // A bad file changes nothing, and the log reports why.
    std::fs::write(&users, "no colon\n").unwrap();
    signal(&server, Signal::HUP);
    wait_until("the log says what is wrong", || {
        server.said().contains("line 1 has no colon")
    });
    assert!(is_admitted(&server, "bob two"));
    std::fs::remove_file(&users).unwrap();
    signal(&server, Signal::HUP);
    wait_until("the log says what is missing", || {
        server.said().contains("No such file")
    });
    assert!(is_admitted(&server, "bob two"));
    assert!(!server.has_stopped());
}

#[test]
fn a_hangup_without_users_changes_nothing() {
    let server = TestServer::start();
    for _ in 0..3 {
        signal(&server, Signal::HUP);
    }
    std::thread::sleep(Duration::from_millis(100));
}

/// The number of lines in the log that contain `what`.
fn lines_with(server: &TestServer, what: &str) -> usize {
    let said = server.said();
    said.lines().filter(|line| line.contains(what)).count()
}

#[test]
fn without_descriptors_accepting_pauses_and_the_log_stays_short() {
    let server = TestServer::start();
    let mut first = server.connect();
    first.ask("mn\r\n", "MN\r\n");
    let few = Rlimit {
        current: Some(40),
        maximum: Some(40),
    };
    prlimit(Some(pid(&server)), Resource::Nofile, few).unwrap();
    let mut others: Vec<Client> = (0..60).map(|_| server.connect()).collect();
    std::thread::sleep(Duration::from_millis(1_500));
    let said = lines_with(&server, "cannot accept connections");
    assert!((1..=2).contains(&said), "{said} lines in 1.5 seconds");
    let now = stats(&mut first);
    assert_eq!(now["accepting_conns"], "0");
    assert_eq!(now["listen_disabled_num"], "1");
    let paused_us: u64 = now["time_in_listen_disabled_us"].parse().unwrap();
    assert!((1_000_000..10_000_000).contains(&paused_us), "{paused_us}");
    // Connections that waited are served when others are closed.
    let mut last = others.pop().unwrap();
    last.send(b"mn\r\n");
    others.drain(..40);
    last.expect("MN\r\n");
    wait_until("connections are accepted again", || {
        stats(&mut first)["accepting_conns"] == "1"
    });
}

/// With any number of descriptors, a server serves its first client, or states why it does not
/// start.
#[test]
fn with_few_descriptors_it_serves_or_does_not_start() {
    let mut served = 0;
    for files in 12..32 {
        // a shell needs 12
        let binary = env!("CARGO_BIN_EXE_corewise");
        let script = format!("ulimit -n {files}; exec {binary} serve -l 127.0.0.1:0 -t 2 2>&1");
        let mut server = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| Some(line.strip_prefix("listening on ")?.to_owned()));
        match address {
            Some(address) => {
                let mut client = Client::connect(address.parse().unwrap());
                client.ask("mn\r\n", "MN\r\n");
                served += 1;
                server.kill().unwrap();
                server.wait().unwrap();
            }
            None => assert_eq!(server.wait().unwrap().code(), Some(1), "{files} files"),
        }
    }
    assert!((1..20).contains(&served), "{served} of 20 served");
}

/// The largest limit reserves 4 TiB of addresses and touches few of them. (Sanitizers leave fewer.)
#[test]
fn the_largest_limit_serves_or_the_server_tells_why_not() {
    if !common::concerns_the_server_under_test() || corewise_testkit::random::is_short() {
        return;
    }
    let limits = ["-m", "1048576", "-t", "2"];
    let refuses = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
    if refuses.is_ok_and(|mode| mode.trim() == "2") {
        common::skip("the system does not overcommit memory");
    } else {
        let server = TestServer::with(&limits);
        let mut client = server.connect();
        for length in [1, 5_000, 200_000, 1_000_000] {
            let value = "v".repeat(length);
            client.ask(
                format!("set k{length} 0 0 {length}\r\n{value}\r\n"),
                "STORED\r\n",
            );
            let shown = format!("VALUE k{length} 0 {length}\r\n{value}\r\nEND\r\n");
            client.ask(format!("get k{length}\r\n"), &shown);
        }
        let stats = stats(&mut client);
        assert_eq!(stats["limit_maxbytes"], (1u64 << 40).to_string());
        assert_eq!((&*stats["curr_items"], &*stats["evictions"]), ("4", "0"));
    }
    let binary = env!("CARGO_BIN_EXE_corewise");
    let script = format!(
        "ulimit -v 100000000; exec {binary} serve -p 0 -s x {}",
        limits.join(" ")
    );
    let folder = tempfile::tempdir().unwrap();
    let ended = Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output_within(Duration::from_secs(20));
    let (code, said) = ended.expect("it does not serve");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("`ulimit -v`"), "{said}");
}

#[test]
fn a_unix_socket_that_a_server_listens_on_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let path = path.to_str().unwrap();
    let mut server = TestServer::with(&["-s", path]);
    let second = Command::new(env!("CARGO_BIN_EXE_corewise"))
        .args(["serve", "-s", path])
        .stdin(Stdio::null())
        .output_within(Duration::from_secs(5));
    let (code, said) = second.expect("a second server does not start");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("another process listens there"), "{said}");
    let mut client = Client::connect_unix(path.as_ref());
    client.ask("mn\r\n", "MN\r\n");
    // A file that has taken its place is not removed.
    std::fs::remove_file(path).unwrap();
    let _other = UnixListener::bind(path).unwrap();
    server.terminate();
    assert_eq!(server.wait().code(), Some(0));
    assert!(UnixStream::connect(path).is_ok());
}

#[test]
fn a_unix_socket_that_nobody_listens_on_is_replaced_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let mut server = TestServer::with(&["-s", path.to_str().unwrap()]);
    Client::connect_unix(&path).ask("mn\r\n", "MN\r\n");
    server.terminate();
    assert_eq!(server.wait().code(), Some(0));
    assert!(!path.exists());
}

#[test]
fn a_pidfile_of_another_server_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pid");
    let mut server = TestServer::with(&["-P", path.to_str().unwrap()]);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, format!("{}\n", server.pid()));
    std::fs::write(&path, "1\n").unwrap();
    server.terminate();
    server.wait();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n");
}

/// Runs a command, and ends it if it takes longer than `limit`.
trait OutputWithin {
    fn output_within(&mut self, limit: Duration) -> Option<(Option<i32>, String)>;
}

impl OutputWithin for Command {
    fn output_within(&mut self, limit: Duration) -> Option<(Option<i32>, String)> {
        let mut child = self
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if start.elapsed() > limit {
                child.kill().unwrap();
                child.wait().unwrap();
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = child.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        Some((
            output.status.code(),
            String::from_utf8_lossy(&said).into_owned(),
        ))
    }
}

#[test]
fn the_file_that_the_environment_names_has_the_ports() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ports");
    let mut child = Command::new(env!("CARGO_BIN_EXE_corewise"))
        .args(["serve", "-t", "1", "-l", "127.0.0.1:0,127.0.0.1:0"])
        .env("MEMCACHED_PORT_FILENAME", &path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !path.exists() && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let text = std::fs::read_to_string(&path);
    let answers = text.as_deref().unwrap_or_default().lines().map(|line| {
        let port = line.strip_prefix("TCP INET: ")?.parse().ok()?;
        let mut client = Client::connect(([127, 0, 0, 1], port).into());
        client.ask("mn\r\n", "MN\r\n");
        Some(port)
    });
    let answers: Vec<Option<u16>> = answers.collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(answers.len() == 2 && !answers.contains(&None), "{text:?}");
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 1, "the temporary file is left");
}

/// Sends 50 requests on each of 8 connections, in pieces, with the signal in the middle.
#[test]
fn requests_under_way_when_the_server_is_told_to_stop_are_answered() {
    const REQUESTS: usize = 50;
    let mut server = TestServer::start();
    server.connect().ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    let clients: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    let answered: Vec<usize> = std::thread::scope(|scope| {
        let work = |client: Client| {
            let mut socket = client.socket();
            for _ in 0..REQUESTS {
                if socket.write_all(b"get a\r\n").is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            let mut replies = Vec::new();
            let _ = socket.read_to_end(&mut replies); // what arrived is examined
            replies
                .windows(5)
                .filter(|bytes| bytes == b"END\r\n")
                .count()
        };
        let threads = clients
            .into_iter()
            .map(|client| scope.spawn(move || work(client)));
        let threads: Vec<_> = threads.collect();
        std::thread::sleep(Duration::from_millis(40));
        server.terminate();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(answered, [REQUESTS; 8]);
    assert_eq!(server.wait().code(), Some(0));
}

/// The server is suspended meanwhile, so it finds the signal beside connections to accept.
#[test]
fn clients_that_connect_before_the_server_is_told_to_stop_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut server = TestServer::with(&["-s", path.to_str().unwrap()]);
    signal(&server, Signal::STOP);
    let connect = |_| {
        let mut client = Client::connect_unix(&path);
        client.send(b"mn\r\n");
        client
    };
    // More than it accepts at a time.
    let clients: Vec<Client> = (0..300).map(connect).collect();
    server.terminate();
    signal(&server, Signal::CONT);
    for mut client in clients {
        client.expect("MN\r\n");
    }
    assert_eq!(server.wait().code(), Some(0));
}

/// Neither clients that keep sending nor idle clients keep the server from stopping.
#[test]
fn a_server_that_is_told_to_stop_stops_beside_busy_clients() {
    let mut server = TestServer::start();
    let idle = server.connect();
    let busy = server.connect();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut socket = busy.socket();
            let mut replies = [0; 4_096];
            while socket.write_all(b"mn\r\n").is_ok()
                && socket.read(&mut replies).is_ok_and(|n| n > 0)
            {}
        });
        std::thread::sleep(Duration::from_millis(100));
        let start = Instant::now();
        server.terminate();
        assert_eq!(server.wait().code(), Some(0));
        assert!(start.elapsed() < Duration::from_secs(4));
    });
    drop(idle);
    // With idle clients only, it does not wait for the five seconds that busy ones get.
    let mut server = TestServer::start();
    let mut idle = server.connect();
    idle.ask("mn\r\n", "MN\r\n");
    std::thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    server.terminate();
    server.wait();
    assert!(start.elapsed() < Duration::from_secs(4));
}
