//! Says what the manifest needs to know of the build, and builds the C and C++ peers with the
//! feature `peers`.

#[path = "build/facts.rs"]
mod facts;
#[cfg(feature = "peers")]
#[path = "peers/build.rs"]
mod peers;

/// What `peers/build.rs` sets for the peers that it could build.
const PEERS: &str = "\"null\", \"tbb\", \"urcu_memb\", \"urcu_qsbr\", \"cuckoo\", \"cds\"";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(corewise_peer, values({PEERS}))");
    facts::describe_build();
    #[cfg(feature = "peers")]
    peers::build();
}
