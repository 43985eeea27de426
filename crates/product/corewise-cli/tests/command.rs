//! The binary from outside: exit statuses, error messages, start and stop.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const COREWISE: &str = env!("CARGO_BIN_EXE_corewise");

fn run(words: &str) -> Output {
    Command::new(COREWISE)
        .args(words.split_whitespace())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A server; killed on drop.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> (Self, String) {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut lines = String::new();
        while !lines.contains("127.0.0.1:") && out.read_line(&mut lines).unwrap() > 0 {}
        // Further output must not fill the pipe.
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        (Self(child), lines)
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: the child has not been waited for, so the process id is still its own.
        unsafe { libc::kill(self.0.id() as libc::pid_t, signal) };
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "waiting until {what}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn help_and_version_are_answers() {
    for words in [
        "--help",
        "-h",
        "serve --help",
        "serve -h",
        "--version",
        "-V",
        "serve -V",
    ] {
        let output = run(words);
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{words}"
        );
    }
    assert!(text(&run("--help").stdout).contains("Example: corewise serve"));
    assert!(text(&run("serve --help").stdout).contains("Examples:\n  corewise serve"));
    let version = concat!("corewise ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(text(&run("--version").stdout), version);
    assert_eq!(text(&run("serve -V").stdout), version);
    assert!(text(&run("serve -i").stdout).contains("Apache-2.0"));
}

#[test]
fn a_bad_option_is_one_line_and_status_2() {
    for words in [
        "",
        "swim",
        "--fast",
        "serve -t 0",
        "serve --engine warp",
        "serve -U 5",
        "serve -p",
        "load --pipeline 0 127.0.0.1:1",
        "load --distribution bell 127.0.0.1:1",
        "load --trace bell 127.0.0.1:1",
        "load --trace zipf --prefill 127.0.0.1:1",
    ] {
        let output = run(words);
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {line}");
        assert!(
            line.starts_with("corewise: ") && line.ends_with('\n'),
            "{words}: {line}"
        );
        assert_eq!(line.lines().count(), 1, "{words}: {line}");
        assert!(output.stdout.is_empty(), "{words}");
    }
}

#[test]
fn an_address_in_use_is_one_line_and_status_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for background in ["", " -d"] {
        let output = run(&format!("serve -l {address}{background}"));
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{background}: {line}");
        assert!(
            line.starts_with("corewise: ") && line.contains(&address.to_string()),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}

#[test]
fn a_server_says_where_it_listens_and_keeps_its_process_id() {
    let dir = TempDir::new().unwrap();
    let pidfile = dir.path().join("pid");
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGUSR1] {
        let mut command = Command::new(COREWISE);
        command
            .args(["serve", "-l", "127.0.0.1:0", "-t", "1", "-P"])
            .arg(&pidfile);
        let (mut server, lines) = Running::start(&mut command);
        assert!(lines.contains("corewise"), "{lines}");
        assert_eq!(
            std::fs::read_to_string(&pidfile).unwrap(),
            format!("{}\n", server.0.id())
        );
        server.signal(signal);
        let status = server.0.wait().unwrap();
        assert!(status.success(), "signal {signal}: {status}");
        assert!(!pidfile.exists());
    }
}

/// Called as memcached there is no subcommand, and root must name a user.
#[test]
fn a_link_named_memcached_takes_memcacheds_command_line() {
    let dir = TempDir::new().unwrap();
    let link = dir.path().join("memcached");
    symlink(COREWISE, &link).unwrap();
    let output = Command::new(&link).args(["-U", "11211"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("UDP"));
    let mut command = Command::new(&link);
    command.args("-m 64 -p -1 -u root -l 127.0.0.1 -t 1".split(' '));
    let (_server, lines) = Running::start(&mut command);
    assert!(lines.contains("127.0.0.1:"), "{lines}");
}

fn pid_in(pidfile: &Path) -> Option<libc::pid_t> {
    std::fs::read_to_string(pidfile).ok()?.trim().parse().ok()
}

#[test]
fn a_daemon_lets_its_parent_go_and_stops_when_told() {
    let dir = TempDir::new().unwrap();
    let (pidfile, socket) = (dir.path().join("pid"), dir.path().join("socket"));
    let mut command = Command::new(COREWISE);
    command
        .args(["serve", "-d", "-t", "1", "-s"])
        .arg(&socket)
        .arg("-P")
        .arg(&pidfile);
    let parent = command.output().unwrap();
    assert!(parent.status.success(), "{}", text(&parent.stderr));
    let pid = pid_in(&pidfile).unwrap();
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
    // SAFETY: the process id of the daemon from its file, which it removes when it stops.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    wait_until("the daemon is gone", || !pidfile.exists());
}

#[test]
fn notes_and_warnings_go_to_standard_error() {
    let mut command = Command::new(COREWISE);
    command.args("serve -l 0.0.0.0:0,127.0.0.1:0 -t 1 -f 1.1".split(' '));
    let (mut server, _) = Running::start(&mut command);
    let mut stderr = server.0.stderr.take().unwrap();
    server.0.kill().unwrap();
    let mut lines = String::new();
    stderr.read_to_string(&mut lines).unwrap();
    assert!(
        lines.contains("corewise: note: -f changes nothing here"),
        "{lines}"
    );
    assert!(
        lines.contains("corewise: warning: listening on 0.0.0.0:0 without auth"),
        "{lines}"
    );
}

/// Values that only the server can reject, which it does before it listens.
#[test]
fn a_bad_value_that_the_server_finds_is_a_bad_option() {
    let long = format!("-s /tmp/{}", "x".repeat(120));
    for (words, part) in [
        ("-m 1048577", "1 to 1048576 MiB"),
        ("--memory 1025g", "1 to 1048576 MiB"),
        ("--memory 100k -I 1k -t 1", "1 to 1048576 MiB"),
        ("--engine locked --eviction random", "`random`"),
        ("--engine global-lock --eviction s3-fifo", "`s3-fifo`"),
        ("-Y /no/such/file", "/no/such/file"),
        ("-Y /dev/null", "no user"),
        ("-l no-such-host.invalid", "no-such-host.invalid"),
        (&long, "108 bytes"),
    ] {
        let output = run(&format!("serve -s /no/such/folder/socket {words}"));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {said}");
        let lines: Vec<&str> = said
            .lines()
            .filter(|line| !line.contains("note:"))
            .collect();
        assert!(
            lines.len() == 1 && lines[0].contains(part),
            "{words}: {said}"
        );
    }
}
