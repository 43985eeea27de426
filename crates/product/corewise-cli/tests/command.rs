//! The binary from outside: exit statuses, error messages, start and stop.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
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
            .filter(|line| !line.contains("note:") && !line.contains("warning:"))
            .collect();
        assert!(
            lines.len() == 1 && lines[0].contains(part),
            "{words}: {said}"
        );
    }
}

/// The check opens no socket: the address is in use.
#[test]
fn a_configuration_is_checked_without_starting() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("corewise.toml");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        run(&format!("serve --check-config --config {}", file.display()))
    };
    let good = check(&format!("listen = \"{address}\"\nmemory = \"64m\"\n"));
    let said = text(&good.stderr);
    assert!(good.status.success(), "{said}");
    assert_eq!(text(&good.stdout), "corewise: the configuration is valid\n");
    for (bad, part) in [
        ("memroy = \"64m\"", "did you mean `memory`"),
        ("auth-file = \"/no/such/file\"", "/no/such/file"),
        ("engine = \"locked\"\neviction = \"random\"", "`random`"),
        ("memory = \"2097152m\"", "1 to 1048576 MiB"),
    ] {
        let output = check(bad);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{bad}: {said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.contains(part), "{bad}: {said}");
        assert!(output.stdout.is_empty(), "{bad}");
    }
}

/// The names of the options that `serve --help` lists.
fn options_in_help() -> Vec<String> {
    let help = text(&run("serve --help").stdout);
    let lines = help.lines().map(str::trim);
    let lines = lines.filter(|line| line.starts_with('-'));
    let names = lines.flat_map(|line| line.split(", ").map(str::to_owned).collect::<Vec<_>>());
    let end = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
    let name = |name: String| name.split(end).next().unwrap_or_default().to_owned();
    let names: Vec<String> = names.map(name).collect();
    names
        .into_iter()
        .filter(|name| name.starts_with('-'))
        .collect()
}

#[test]
fn the_manual_and_the_completions_have_every_option() {
    let options = options_in_help();
    assert!(options.len() > 80, "{options:?}");
    let dir = TempDir::new().unwrap();
    assert!(
        run(&format!("man {}", dir.path().display()))
            .status
            .success()
    );
    let page = |name| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert!(page("corewise.1").contains("corewise\\-serve(1)"));
    let manual = page("corewise-serve.1").replace("\\-", "-");
    let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
    let has = |page: &str, option: &str| page.split(is_end).any(|word| word == option);
    for option in &options {
        let bold = format!("\\fB{option}\\fR");
        assert!(manual.contains(&bold), "{option} in the manual");
    }
    let bash = text(&run("completions bash").stdout);
    for option in &options {
        assert!(has(&bash, option), "{option} in the completions of bash");
    }
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        let script = text(&run(&format!("completions {shell}")).stdout);
        assert!(script.contains("slow-reader-timeout"), "{shell}");
    }
    let missing = run("man /no/such/folder");
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("/no/such/folder"));
}

#[test]
fn a_service_manager_is_told_that_the_server_is_ready_and_runs() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut command = Command::new(COREWISE);
    command
        .args("serve -l 127.0.0.1:0 -t 2 -m 64".split(' '))
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "100000");
    let (mut server, _) = Running::start(&mut command);
    let (mut is_ready, mut beats) = (false, 0);
    while !is_ready || beats < 4 {
        let mut message = [0; 256];
        let len = manager.recv(&mut message).expect("a message in time");
        let message = text(&message[..len]);
        is_ready |= message.contains("READY=1");
        beats += usize::from(message.contains("WATCHDOG=1"));
    }
    server.signal(libc::SIGTERM);
    assert!(server.0.wait().unwrap().success());
}
