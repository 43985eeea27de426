//! Describes the build for the manifest, and builds the C and C++ peers with the feature `peers`.

#[path = "build/facts.rs"]
mod facts;
#[cfg(feature = "peers")]
#[path = "peers/build.rs"]
mod peers;

/// The peers for which `peers/build.rs` may set `corewise_peer`.
const PEERS: &str =
    "\"null\", \"tbb\", \"urcu_memb\", \"urcu_sync\", \"urcu_qsbr\", \"cuckoo\", \"cds\"";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(corewise_peer, values({PEERS}))");
    facts::describe_build();
    #[cfg(feature = "peers")]
    peers::build();
}
