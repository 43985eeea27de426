//! Compares the miss ratios of memory managers and eviction policies: replays generated traces
//! against models of both, with limits that hold a share of the trace's footprint.
//!
//! ```text
//! cargo run --release -p corewise-maps-lab --example memory_policies -- \
//!     --trace zipf:1,zipf-scan:1 --share 5,20,50 --seeds 3 --design seg-sieve,class-s3+thr=2
//! ```
//!
//! A design is a name and options, joined by `+`:
//!
//! * `seg-fifo seg-random seg-merge seg-clock seg-sieve seg-s3`: a log of segments. Options: `size`
//!   (KiB of a segment, 256), `ttl` (1: separate segments by time to live), `sweep` (seconds
//!   between two looks at a segment for expired items, 1; 0: they are found by chance only),
//!   `clean` (percent of live bytes below which a segment is compacted rather than evicted from),
//!   `threads` (each with open segments, 1), `small` (percent, 10), `thr` (hits for promotion, 2),
//!   `max` (largest count, 3), `ghost` (percent of the main queue's items, 100), `unit` (one more
//!   hit is required per this multiple of the mean size; 0: none), `groups` (percent by which
//!   groups of item sizes grow; each has separate queues, and the coldest per byte gives up
//!   segments; 0: one group), `patience` (segments a store reclaims before it evicts whole ones,
//!   64).
//! * `class-fifo class-random class-lru class-clock class-sieve class-s3`: size classes. Options:
//!   `growth` (percent, 125), `page` (KiB, 64), `small`, `thr`, `header` (bytes, 40), `dense` (1:
//!   pages move by age times chunk size, so to where they bring more hits).
//! * `memcached`: size classes with LRU, pages of 1 MiB and headers of 59 bytes, for orientation.
//!   Like the original it exceeds the limit so that each class has a page.
//!
//! For each trace and share, the program prints the miss ratio after the first fifth of the trace
//! (mean and range over the seeds), live key and value bytes as a share of the limit, bytes copied
//! per byte stored, the most segments one store reclaimed, items swept per store, and the most
//! bytes of segments or pages as a share of the limit. A limit covers items, 16 bytes of table per
//! item, and 4 bytes per ghost entry.

mod classes;
mod ghost;
mod replay;
mod segments;

use std::process::exit;

use corewise_measure::trace::{TraceConfig, TraceModel};

use replay::{Cache, Measured, Tape};

const USAGE: &str = "usage: memory_policies [--trace MODEL,..] [--share PERCENT,..] [--seeds N] \
    [--keys N] [--requests N] [--rate N] [--design NAME+OPTION=N..,..]";

#[derive(Clone)]
enum Design {
    Segments(segments::Options),
    Classes(classes::Options),
}

struct Args {
    models: Vec<TraceModel>,
    shares: Vec<f64>,
    seeds: u64,
    trace: TraceConfig,
    designs: Vec<(String, Design)>,
}

fn main() {
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("memory_policies: {error}\n{USAGE}");
            exit(2);
        }
    };
    println!(
        "{} keys, {} requests, {} a second, {} seeds",
        args.trace.keys, args.trace.requests, args.trace.rate_per_s, args.seeds
    );
    for &model in &args.models {
        let tapes: Vec<_> = (1..=args.seeds)
            .map(|seed| {
                Tape::record(TraceConfig {
                    model,
                    seed,
                    ..args.trace
                })
            })
            .collect();
        let (scans, phases) = (
            matches!(model, TraceModel::ZipfScan(_)),
            matches!(model, TraceModel::SizeShift(_)),
        );
        let footprint = tapes[0].footprint(scans, phases);
        for share in &args.shares {
            let limit = (footprint as f64 * share / 100.0) as u64;
            println!(
                "\n{model}, {share} % of {} MiB = {} MiB",
                footprint >> 20,
                limit >> 20
            );
            for (name, design) in &args.designs {
                let runs: Vec<_> = tapes
                    .iter()
                    .map(|tape| tape.replay(&mut *build(design, limit, tape)))
                    .collect();
                print_row(name, limit, &runs);
            }
        }
    }
}

fn build(design: &Design, limit: u64, tape: &Tape) -> Box<dyn Cache> {
    match design {
        Design::Segments(o) => Box::new(segments::Segments::new(*o, limit, tape.key_bound)),
        Design::Classes(o) => Box::new(classes::Classes::new(*o, limit, tape.key_bound)),
    }
}

fn print_row(name: &str, limit: u64, runs: &[Measured]) {
    let mean = |f: &dyn Fn(&Measured) -> f64| runs.iter().map(f).sum::<f64>() / runs.len() as f64;
    let (low, high) = runs.iter().fold((f64::MAX, 0f64), |(low, high), run| {
        (low.min(run.miss_ratio), high.max(run.miss_ratio))
    });
    println!(
        "  {name:36} miss {:.4} [{low:.4}-{high:.4}]  live {:.3}  copied {:.3}  longest {}  swept {:.2}  peak {:.2}",
        mean(&|r| r.miss_ratio),
        mean(&|r| r.live_bytes / limit as f64),
        mean(&|r| r.work.copied_bytes as f64 / r.work.stored_bytes as f64),
        runs.iter()
            .map(|r| r.work.longest_reclaim)
            .max()
            .unwrap_or(0),
        mean(&|r| r.work.swept_items as f64 / r.work.stores as f64),
        mean(&|r| r.work.peak_bytes as f64 / limit as f64),
    );
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut parsed = Args {
        models: [
            "zipf:0.8",
            "zipf:1",
            "zipf:1.2",
            "zipf-scan:1",
            "short-ttl:1",
            "size-shift:1",
        ]
        .into_iter()
        .chain(["correlated:small", "correlated:large", "drift:1"])
        .map(|model| model.parse().map_err(|e| format!("{e}")))
        .collect::<Result<_, _>>()?,
        shares: vec![5.0, 20.0, 50.0],
        seeds: 2,
        trace: TraceConfig::default(),
        designs: Vec::new(),
    };
    let mut designs =
        "seg-fifo,seg-random,seg-merge,seg-clock,seg-sieve,seg-sieve+clean=85,seg-s3,\
        seg-s3+thr=1,seg-s3+thr=1+clean=85,seg-s3+thr=1+unit=2+clean=85,\
        seg-s3+thr=1+groups=800+clean=85,class-random,class-lru,class-lru+dense=1,class-sieve,\
        class-sieve+dense=1,class-s3+thr=1,class-s3+thr=1+dense=1,memcached"
            .to_owned();
    while let Some(name) = args.next() {
        let value = args.next().ok_or(format!("{name} needs a value"))?;
        match name.as_str() {
            "--trace" => {
                let models = value
                    .split(',')
                    .map(|model| model.parse().map_err(|e| format!("{e}")));
                parsed.models = models.collect::<Result<_, _>>()?;
            }
            "--share" => {
                parsed.shares = value.split(',').map(number).collect::<Result<_, _>>()?;
            }
            "--seeds" => parsed.seeds = number(&value)?.max(1.0) as u64,
            "--keys" => parsed.trace.keys = number(&value)?.max(1.0) as u64,
            "--requests" => parsed.trace.requests = number(&value)? as u64,
            "--rate" => parsed.trace.rate_per_s = number(&value)?.max(1.0) as u64,
            "--design" => designs = value,
            _ => return Err(format!("unknown option {name}")),
        }
    }
    parsed.designs = designs
        .split(',')
        .map(|text| Ok((text.to_owned(), design(text)?)))
        .collect::<Result<_, String>>()?;
    Ok(parsed)
}

fn number(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if n >= 0.0 => Ok(n),
        _ => Err(format!("'{text}' is no number")),
    }
}

fn design(text: &str) -> Result<Design, String> {
    let mut parts = text.split('+');
    let name = parts.next().unwrap_or_default();
    let mut design = match name.split_once('-') {
        Some(("seg", policy)) => Design::Segments(segment_defaults(match policy {
            "fifo" => segments::Policy::Fifo,
            "random" => segments::Policy::Random,
            "merge" => segments::Policy::Merge,
            "clock" => segments::Policy::Clock,
            "sieve" => segments::Policy::Sieve,
            "s3" => segments::Policy::S3,
            _ => return Err(format!("no design '{name}'")),
        })),
        Some(("class", policy)) => Design::Classes(class_defaults(match policy {
            "fifo" => classes::Policy::Fifo,
            "random" => classes::Policy::Random,
            "lru" => classes::Policy::Lru,
            "clock" => classes::Policy::Clock,
            "sieve" => classes::Policy::Sieve,
            "s3" => classes::Policy::S3,
            _ => return Err(format!("no design '{name}'")),
        })),
        _ if name == "memcached" => Design::Classes(classes::Options {
            header_bytes: 59,
            page_bytes: 1 << 20,
            first_page_free: true,
            ..class_defaults(classes::Policy::Lru)
        }),
        _ => return Err(format!("no design '{name}'")),
    };
    for part in parts {
        let (option, value) = part
            .split_once('=')
            .ok_or(format!("'{part}' is no option"))?;
        set(&mut design, option, number(value)?)?;
    }
    Ok(design)
}

fn segment_defaults(policy: segments::Policy) -> segments::Options {
    segments::Options {
        policy,
        segment_bytes: 256 << 10,
        ttl_classes: false,
        sweep_s: 1,
        clean_below: 0.0,
        threads: 1,
        small_share: 0.1,
        promote_at: 2,
        max_count: 3,
        ghost_share: 1.0,
        size_unit: 0.0,
        group_growth: 0.0,
        patience: 64,
    }
}

fn class_defaults(policy: classes::Policy) -> classes::Options {
    classes::Options {
        policy,
        header_bytes: 40,
        growth: 1.25,
        page_bytes: 64 << 10,
        first_page_free: false,
        small_share: 0.1,
        promote_at: 2,
        dense: false,
    }
}

fn set(design: &mut Design, option: &str, value: f64) -> Result<(), String> {
    match (design, option) {
        (Design::Segments(o), "size") => o.segment_bytes = (value as u32).clamp(64, 1024) << 10,
        (Design::Segments(o), "ttl") => o.ttl_classes = value > 0.0,
        (Design::Segments(o), "sweep") => o.sweep_s = value as u32,
        (Design::Segments(o), "clean") => o.clean_below = value / 100.0,
        (Design::Segments(o), "threads") => o.threads = (value as u32).max(1),
        (Design::Segments(o), "small") => o.small_share = value / 100.0,
        (Design::Segments(o), "thr") => o.promote_at = value as u8,
        (Design::Segments(o), "max") => o.max_count = value as u8,
        (Design::Segments(o), "ghost") => o.ghost_share = value / 100.0,
        (Design::Segments(o), "groups") => o.group_growth = value / 100.0,
        (Design::Segments(o), "unit") => o.size_unit = value,
        (Design::Segments(o), "patience") => o.patience = value as u32,
        (Design::Classes(o), "growth") => o.growth = (value / 100.0).max(1.05),
        (Design::Classes(o), "page") => o.page_bytes = (value as u32).clamp(64, 1024) << 10,
        (Design::Classes(o), "small") => o.small_share = value / 100.0,
        (Design::Classes(o), "thr") => o.promote_at = value as u8,
        (Design::Classes(o), "dense") => o.dense = value > 0.0,
        (Design::Classes(o), "header") => o.header_bytes = value as u32,
        _ => return Err(format!("the design has no option '{option}'")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESIGNS: [&str; 17] = [
        "seg-fifo",
        "seg-random",
        "seg-merge",
        "seg-clock",
        "seg-sieve+clean=85",
        "seg-s3",
        "seg-s3+thr=1+unit=2+clean=85+threads=3",
        "seg-s3+thr=1+groups=400+clean=85",
        "seg-s3+ttl=1+clean=85",
        "class-fifo",
        "class-random",
        "class-lru",
        "class-clock",
        "class-sieve",
        "class-s3",
        "class-s3+dense=1",
        "memcached",
    ];

    fn tape(model: &str) -> Tape {
        Tape::record(TraceConfig {
            model: model.parse().expect("a model"),
            keys: 20_000,
            requests: 200_000,
            ..TraceConfig::default()
        })
    }

    fn measure(name: &str, limit: u64, tape: &Tape) -> Measured {
        tape.replay(&mut *build(&design(name).expect(name), limit, tape))
    }

    #[test]
    fn with_room_for_everything_each_key_misses_once() {
        let tape = tape("zipf:0.9");
        let mut seen = std::collections::HashSet::new();
        let (mut fetches, mut misses) = (0, 0);
        for (at, request) in tape.requests.iter().enumerate() {
            let new = seen.insert(request.key);
            if at >= tape.requests.len() / 5 && !request.overwrite {
                fetches += 1;
                misses += i32::from(new);
            }
        }
        for name in DESIGNS {
            let miss_ratio = measure(name, 1 << 30, &tape).miss_ratio;
            assert_eq!(miss_ratio, f64::from(misses) / f64::from(fetches), "{name}");
        }
    }

    #[test]
    fn a_limit_is_kept_and_a_larger_one_misses_less() {
        for model in ["zipf:1", "short-ttl:1", "size-shift:1"] {
            let tape = tape(model);
            for name in DESIGNS.iter().filter(|name| **name != "memcached") {
                let small = measure(name, 2 << 20, &tape);
                let large = measure(name, 4 << 20, &tape);
                assert!(small.miss_ratio > large.miss_ratio, "{model} {name}");
                assert!(large.live_bytes < f64::from(4 << 20), "{model} {name}");
                // One more segment for each class of times to live while they are merged.
                let most = (4 << 20) + 8 * (256 << 10);
                assert!(large.work.peak_bytes <= most, "{model} {name}");
            }
        }
    }

    #[test]
    fn policies_that_watch_hits_beat_chance() {
        let tape = tape("zipf:1");
        for (chance, better) in [("seg-random", "seg-s3"), ("class-random", "class-sieve")] {
            let chance = measure(chance, 2 << 20, &tape).miss_ratio;
            let better = measure(better, 2 << 20, &tape).miss_ratio;
            assert!(better < 0.9 * chance, "{better} for {chance}");
        }
    }

    #[test]
    fn bad_designs_are_refused() {
        for bad in [
            "",
            "seg",
            "seg-mru",
            "class-lru+thr",
            "class-lru+clean=1",
            "seg-s3+thr=x",
        ] {
            assert!(design(bad).is_err(), "{bad}");
        }
    }
}
