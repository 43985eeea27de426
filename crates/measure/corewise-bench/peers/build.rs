//! Finds the installed C and C++ libraries and builds a peer for each.
//!
//! A library counts as installed if a program that includes its header links. For each peer that is
//! built, the script sets `cfg(corewise_peer = "name")`, and `COREWISE_PEER_NAME_VERSION` holds the
//! library's version. `COREWISE_PEERS_MISSING` lists the missing peers with reasons, as
//! `names=reason` entries separated by `;`. A library that is installed later is found when this
//! script runs again: touch a file in `peers`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

/// Where the version of a library is found.
enum Version {
    /// No version is available.
    None,
    /// A string literal that a macro of the header expands to.
    Macro(&'static str, &'static str),
    /// The version that pkg-config reports for a package.
    PkgConfig(&'static str),
    /// `PACKAGE_VERSION` in a CMake file, under a prefix.
    CMake(&'static str),
}

/// Source of a peer and the library it needs.
struct Library {
    /// Name of the cfg and the environment variable.
    name: &'static str,
    /// Names of the tables in the program.
    tables: &'static str,
    source: &'static str,
    define: &'static str,
    header: &'static str,
    links: &'static [&'static str],
    package: &'static str,
    version: Version,
}

const LIBRARIES: &[Library] = &[
    Library {
        name: "null",
        tables: "peer-null",
        source: "null.c",
        define: "PEER_NULL",
        header: "stddef.h",
        links: &[],
        package: "gcc",
        version: Version::None,
    },
    Library {
        name: "tbb",
        tables: "tbb",
        source: "tbb.cpp",
        define: "PEER_TBB",
        header: "tbb/concurrent_hash_map.h",
        links: &["tbb"],
        package: "libtbb-dev",
        version: Version::Macro("tbb/version.h", "TBB_VERSION_STRING"),
    },
    Library {
        name: "urcu_memb",
        tables: "urcu-memb",
        source: "urcu.c",
        define: "PEER_MEMB",
        header: "urcu/urcu-memb.h",
        links: &["urcu-cds", "urcu-memb", "urcu-common"],
        package: "liburcu-dev",
        version: Version::PkgConfig("liburcu-memb"),
    },
    Library {
        name: "urcu_sync",
        tables: "urcu-sync",
        source: "urcu.c",
        define: "PEER_SYNC",
        header: "urcu/urcu-memb.h",
        links: &["urcu-cds", "urcu-memb", "urcu-common"],
        package: "liburcu-dev",
        version: Version::PkgConfig("liburcu-memb"),
    },
    Library {
        name: "urcu_qsbr",
        tables: "urcu-qsbr",
        source: "urcu.c",
        define: "PEER_QSBR",
        header: "urcu/urcu-qsbr.h",
        links: &["urcu-cds", "urcu-qsbr", "urcu-common"],
        package: "liburcu-dev",
        version: Version::PkgConfig("liburcu-qsbr"),
    },
    Library {
        name: "cuckoo",
        tables: "libcuckoo",
        source: "cuckoo.cpp",
        define: "PEER_CUCKOO",
        header: "libcuckoo/cuckoohash_map.hh",
        links: &[],
        package: "libcuckoo-dev",
        version: Version::CMake("share/cmake/libcuckoo/libcuckoo-config-version.cmake"),
    },
    Library {
        name: "cds",
        tables: "cds-michael, cds-split, cds-feldman",
        source: "cds.cpp",
        define: "PEER_CDS",
        header: "cds/init.h",
        links: &["cds"],
        package: "libcds-dev",
        version: Version::Macro("cds/version.h", "CDS_VERSION_STRING"),
    },
];

/// Environment variables that locate compilers and libraries.
const VARIABLES: &[&str] = &[
    "CC",
    "CXX",
    "CFLAGS",
    "CXXFLAGS",
    "CPATH",
    "LIBRARY_PATH",
    "PKG_CONFIG",
    "PKG_CONFIG_PATH",
];

/// Builds all available peers and passes the result to the crate.
pub(crate) fn build() {
    println!("cargo::rerun-if-changed=peers");
    for variable in VARIABLES {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let mut missing = Vec::new();
    for library in LIBRARIES {
        match library.build() {
            Ok(version) => library.announce(&version),
            Err(reason) => missing.push((library.tables, reason)),
        }
    }
    for (tables, reason) in &missing {
        println!("cargo::warning=peers left out: {tables}: {reason}");
    }
    let lines: Vec<_> = missing
        .iter()
        .map(|(tables, reason)| format!("{tables}={reason}"))
        .collect();
    println!(
        "cargo::rustc-env=COREWISE_PEERS_MISSING={}",
        lines.join(";")
    );
}

impl Library {
    /// Builds the peer. Returns its version, or the reason for the failure.
    fn build(&self) -> Result<String, String> {
        self.links()?;
        let source = Path::new("peers").join(self.source);
        self.compiler()
            .file(source)
            .define(self.define, None)
            .cargo_metadata(true)
            .cargo_warnings(true)
            .try_compile(&format!("corewise_peer_{}", self.name))
            .map_err(|error| format!("{} does not compile: {}", self.source, one_line(&error)))?;
        for link in self.links {
            println!("cargo::rustc-link-lib=dylib={link}");
        }
        Ok(self.version())
    }

    fn announce(&self, version: &str) {
        println!("cargo::rustc-cfg=corewise_peer=\"{}\"", self.name);
        let name = self.name.to_uppercase();
        println!("cargo::rustc-env=COREWISE_PEER_{name}_VERSION={version}");
    }

    /// A compiler with the optimisation of a release build, whatever the profile of the crate.
    fn compiler(&self) -> cc::Build {
        let mut build = cc::Build::new();
        build.opt_level(3).define("NDEBUG", None).warnings(true);
        build.cargo_metadata(false).cargo_warnings(false);
        if self.is_cpp() {
            build.cpp(true).std("c++17");
        } else {
            build.std("gnu11");
        }
        build
    }

    fn is_cpp(&self) -> bool {
        self.source.ends_with(".cpp")
    }

    /// Whether a program with the library's header compiles and links.
    fn links(&self) -> Result<(), String> {
        let include = format!("#include <{}>\n", self.header);
        let found = self.expand(&include)?;
        if found.is_none() {
            let (header, package) = (self.header, self.package);
            return Err(format!("header {header} not found (Debian: {package})"));
        }
        let source = self.probe(
            "link",
            &format!("{include}int main(void) {{ return 0; }}\n"),
        );
        let mut command = self.command()?;
        command
            .arg(&source)
            .arg("-o")
            .arg(source.with_extension("out"));
        command.args(self.links.iter().map(|link| format!("-l{link}")));
        match run(&mut command) {
            Ok(_) => Ok(()),
            Err(_) => Err(format!(
                "header {} is there, but a program with {} does not link (Debian: {})",
                self.header,
                self.links.join(", "),
                self.package
            )),
        }
    }

    /// Runs the preprocessor and returns its output; `None` if it fails.
    fn expand(&self, text: &str) -> Result<Option<String>, String> {
        let source = self.probe("expand", text);
        let mut command = self.command()?;
        Ok(run(command.arg("-E").arg("-P").arg(source)).ok())
    }

    fn command(&self) -> Result<Command, String> {
        let tool = self.compiler().try_get_compiler();
        let command = tool.map_err(|error| one_line(&error))?.to_command();
        let language = if self.is_cpp() { "C++" } else { "C" };
        match Command::new(command.get_program())
            .arg("--version")
            .output()
        {
            Ok(_) => Ok(command),
            Err(_) => Err(format!("no {language} compiler (Debian: g++)")),
        }
    }

    /// Writes a file for the compiler to try.
    fn probe(&self, what: &str, text: &str) -> PathBuf {
        let extension = if self.is_cpp() { "cpp" } else { "c" };
        let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
        let path = Path::new(&out).join(format!("{what}_{}.{extension}", self.name));
        fs::write(&path, text).expect("OUT_DIR can be written");
        path
    }

    fn version(&self) -> String {
        let found = match self.version {
            Version::None => Some("-".to_owned()),
            Version::Macro(header, name) => self.macro_version(header, name),
            Version::PkgConfig(package) => pkg_config_version(package),
            Version::CMake(path) => cmake_version(path),
        };
        found.unwrap_or_else(|| "unknown".to_owned())
    }

    fn macro_version(&self, header: &str, name: &str) -> Option<String> {
        let text = format!("#include <{header}>\ncorewise_version {name}\n");
        let output = self.expand(&text).ok()??;
        let (_, literals) = output.rsplit_once("corewise_version")?;
        let line = literals.lines().next()?;
        // Joins the contents of the literals, as in "2021" "." "8".
        let version: String = line.split('"').skip(1).step_by(2).collect();
        (!version.is_empty()).then_some(version)
    }
}

fn pkg_config_version(package: &str) -> Option<String> {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_owned());
    let output = run(Command::new(program).arg("--modversion").arg(package)).ok()?;
    Some(output.trim().to_owned())
}

fn cmake_version(path: &str) -> Option<String> {
    ["/usr", "/usr/local"].iter().find_map(|prefix| {
        let text = fs::read_to_string(Path::new(prefix).join(path)).ok()?;
        let (_, rest) = text.split_once("set(PACKAGE_VERSION \"")?;
        rest.split('"').next().map(str::to_owned)
    })
}

/// Returns the standard output of a command that succeeds.
fn run(command: &mut Command) -> Result<String, ()> {
    let output = command.stderr(Stdio::null()).output().map_err(drop)?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(())
    }
}

/// Replaces the characters that would end the line or the entry.
fn one_line(error: &impl ToString) -> String {
    error.to_string().replace(['\n', ';', '='], " ")
}
