use super::*;
use crate::params::Threads;
use crate::subject::Capability;

fn tasks(text: &str) -> Result<Vec<Task>, String> {
    Suite::parse(text)?.tasks(&Params::default(), &Topology::flat(4), false)
}

#[test]
fn lists_are_dimensions() {
    let tasks = tasks(
        "name='x'\n[[section]]\nkind='scaling'\nthreads=['1..cpus']\ninitial=[10,20]\nupdates=[0.0,50.0]",
    )
    .expect("valid");
    assert_eq!(tasks.len(), 3 * 2 * 2);
    assert_eq!(tasks[0].workload.id(), "scaling/i=10,u=0,uniform,n=1");
    assert_eq!(tasks[0].workload.range, 20);
    assert_eq!(tasks[0].repetitions, 15);
}

#[test]
fn sections_go_before_defaults_and_the_command_line_before_both() {
    let text = "name='x'\n[defaults]\nupdates=[1.0]\nrepetitions=7\n[[section]]\nkind='updates'\nupdates=[2.0]";
    let suite = Suite::parse(text).expect("valid");
    let given = Params {
        threads: Some(vec![Threads::Number(3)]),
        ..Params::default()
    };
    let tasks = suite
        .tasks(&given, &Topology::flat(4), false)
        .expect("valid");
    assert_eq!((tasks.len(), tasks[0].repetitions), (1, 7));
    assert_eq!(
        (tasks[0].workload.threads, tasks[0].workload.insert_percent),
        (3, 1.0)
    );
}

#[test]
fn a_list_of_cpus_has_one_for_each_thread() {
    let pinned = |list: &str, oversubscribe| {
        let text = format!(
            "name='x'\n[[section]]\nkind='scaling'\ninitial=[9]\nupdates=[0]\nthreads=[2]\n\
             pin=['{list}']"
        );
        let suite = Suite::parse(&text).expect("valid");
        let tasks = suite.tasks(&Params::default(), &Topology::flat(4), oversubscribe);
        tasks.map(|tasks| tasks.len())
    };
    assert_eq!(pinned("list:1,3", false), Ok(1));
    assert_eq!(pinned("list:1", true), Ok(1));
    for (list, what) in [("list:1", "fewer than 2"), ("list:3,4", "not use CPU 4")] {
        let refused = pinned(list, false).expect_err(list);
        assert!(refused.contains(what), "{refused}");
    }
}

#[test]
fn half_of_a_cache_is_in_flight_at_most() {
    let batches = |text: &str| {
        let text = format!("name='x'\n[[section]]\nkind='cache'\nthreads=[2]\n{text}");
        let tasks = tasks(&text).expect("valid");
        Vec::from_iter(tasks.iter().map(|task| task.workload.batch()))
    };
    assert_eq!(batches("initial=[100,4096]\nbatch=[1024]"), [25, 1024]);
    assert_eq!(batches("initial=[100]\nbatch=[20,26]\nload=200.0"), [12]);
    assert_eq!(batches("initial=[1]\nbatch=[8]"), [1]);
}

#[test]
fn powers_of_two_go_as_far_as_the_cpus() {
    let words =
        |words: &str, cpus, over| Threads::Words(words.into()).resolve(&Topology::flat(cpus), over);
    assert_eq!(words("1..cpus", 6, false), Some(vec![1, 2, 4, 6]));
    assert_eq!(words("1..16", 6, false), Some(vec![1, 2, 4]));
    assert_eq!(words("1..12", 64, false), Some(vec![1, 2, 4, 8, 12]));
    assert_eq!(words("1..16", 2, true), Some(vec![1, 2, 4, 8, 16]));
    assert_eq!(words("1..1", 1, false), Some(vec![1]));
    let mut two_sockets = Topology::flat(6);
    for cpu in &mut two_sockets.cpus[4..] {
        cpu.package = 1;
    }
    let sockets = |words: &str| Threads::Words(words.into()).resolve(&two_sockets, false);
    assert_eq!(sockets("1s"), Some(vec![4]));
    assert_eq!(sockets("2s"), Some(vec![6]));
    assert_eq!((sockets("3s"), sockets("0s")), (Some(Vec::new()), None));
}

#[test]
fn the_resizing_section_is_the_thesiss() {
    let tasks = tasks("name='x'\n[[section]]\nkind='resizing'").expect("valid");
    let workload = &tasks[0].workload;
    assert_eq!(
        (workload.insert_percent, workload.remove_percent),
        (35.0, 5.0)
    );
    assert_eq!(
        workload.announced(),
        ((1 << 20) as f64 / 0.9).ceil() as usize
    );
}

#[test]
fn shipped_suites_have_the_parameters_of_their_papers() {
    let tasks = |name: &str| {
        let suite = Suite::find(name).expect(name);
        let tasks = suite.tasks(&Params::default(), &Topology::flat(2), false);
        tasks.expect("valid")
    };
    let thesis = tasks("thesis");
    let mut occupancies = Vec::new();
    for task in &thesis {
        let of = &task.workload;
        let is_long = of.section_name() == "memory" || of.initial > 1_000_000;
        assert_eq!(task.repetitions, if is_long { 2 } else { 5 }, "{}", of.id());
        let occupancy = 100.0 * of.initial as f64 / of.announced().max(1) as f64;
        if of.section_name() == "resizing" {
            assert_eq!((of.insert_percent, of.remove_percent), (35.0, 5.0));
            occupancies.push(occupancy.round());
        } else if of.announced() > 0 {
            assert_eq!(occupancy, 50.0, "{}", of.id());
        }
    }
    assert_eq!(occupancies, [90.0, 45.0]);
    for name in ["relativistic", "resize"] {
        let resizes = tasks(name).into_iter();
        let resizes = resizes.filter(|task| task.workload.section_name() == "resize");
        let pins: Vec<String> = resizes.map(|task| task.workload.pin_name()).collect();
        assert!(
            !pins.is_empty() && pins.iter().all(|pin| pin == "default"),
            "{pins:?}"
        );
    }
}

#[test]
fn a_name_holds_what_varies_and_one_name_is_one_cell() {
    let section = |words: &str| format!("[[section]]\nkind='scaling'\nthreads=[1]\n{words}\n");
    let ids = |sections: &[&str]| -> Result<Vec<String>, String> {
        let sections: String = sections.iter().map(|words| section(words)).collect();
        let tasks = tasks(&format!("name='x'\n{sections}"))?;
        Ok(tasks.iter().map(|task| task.workload.id()).collect())
    };
    let base = "scaling/i=1048576,u=10,uniform,n=1";
    let varied = ids(&["pin=['default','compact']", "load=90.0"]);
    let endings = [",default", "", ",occupancy=90"];
    assert_eq!(
        varied,
        Ok(endings.map(|end| format!("{base}{end}")).to_vec())
    );
    assert_eq!(ids(&["", ""]), Ok(vec![base.to_owned()]), "measured once");
    let unpinned = format!("name='x'\n{}", section("pin=['default']"));
    let unpinned = &tasks(&unpinned).expect("valid")[0].workload;
    for (name, is) in [
        (&*unpinned.id(), true),
        (base, true),
        ("scaling/i=1", false),
    ] {
        assert_eq!(unpinned.is_called(name), is, "{name}");
    }
    for other in ["churn=0.5", "repetitions=3", "tables=['mutex']"] {
        let error = ids(&["", other]).expect_err(other);
        assert!(error.contains(base) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn a_given_parameter_may_make_one_cell_of_two() {
    let given = Params {
        initial: Some(vec![7]),
        ..Params::default()
    };
    let topology = Topology::flat(4);
    let sections = |first: u64, second: u64| {
        let section = |initial, repetitions| {
            format!(
                "[[section]]\nkind='scaling'\nthreads=[8]\ninitial=[{initial}]\n\
                 repetitions={repetitions}\n"
            )
        };
        let text = format!("name='x'\n{}{}", section(first, 5), section(second, 3));
        Suite::parse(&text).expect("valid")
    };
    let tasks = sections(10, 20).tasks(&given, &topology, true);
    let [task] = &tasks.expect("the first section counts")[..] else {
        panic!("not one cell")
    };
    assert_eq!((task.workload.initial, task.repetitions), (7, 5));
    let error = sections(10, 10).tasks(&given, &topology, true);
    assert!(error.is_err_and(|what| what.contains("two cells")));
}

#[test]
fn a_writer_and_a_reader_are_two_threads_or_none() {
    let suite = Suite::parse("name='x'\n[[section]]\nkind='tails'\nthreads=[3]\ninitial=[9]");
    let suite = suite.expect("valid");
    for (cpus, oversubscribe, threads) in
        [(4, false, vec![2]), (1, true, vec![2]), (1, false, vec![])]
    {
        let tasks = suite.tasks(&Params::default(), &Topology::flat(cpus), oversubscribe);
        let tasks = tasks.expect("valid").into_iter();
        let found: Vec<usize> = tasks.map(|task| task.workload.threads).collect();
        assert_eq!(found, threads);
    }
}

#[test]
fn sections_whose_keys_are_all_there_update_nothing_by_chance() {
    let tasks = tasks(
        "name='x'\n[[section]]\nkind='hot'\ninitial=[10]\nthreads=[1]\n[[section]]\nkind='resize'\nthreads=[1]",
    );
    let tasks = tasks.expect("valid");
    let ids: Vec<_> = tasks.iter().flat_map(|task| task.workload.ids()).collect();
    assert_eq!(
        ids,
        [
            "hot/i=10,single,n=1",
            "hot/i=10,uniform,n=1",
            "resize/i=65536,n=1,b=8192-16384",
            "resize/i=65536,n=1,b=8192",
            "resize/i=65536,n=1,b=16384",
        ]
    );
    for task in tasks {
        let workload = task.workload;
        assert_eq!(workload.range, workload.initial);
        assert_eq!(
            (workload.insert_percent, workload.remove_percent),
            (0.0, 0.0)
        );
    }
}

#[test]
fn batches_are_lookups_of_keys_half_of_which_are_there() {
    let text = "name='x'\n[[section]]\nkind='batch'\ninitial=[100]\nthreads=[2]\nupdates=[50.0]\ndensity=7.0";
    let tasks = tasks(text).expect("valid");
    let ids: Vec<_> = tasks.iter().map(|task| task.workload.id()).collect();
    let id = |keys| format!("batch/i=100,u=0,uniform,n=2,batch={keys}");
    assert_eq!(ids, [1, 16, 64].map(id));
    for task in tasks {
        let plan = task.workload.plan();
        let there = (0..plan.range).filter(|&index| plan.prefilled(index));
        assert!(there.clone().all(|index| plan.keeps(index)));
        assert_eq!((there.count(), plan.range), (100, 200));
    }
}

#[test]
fn a_mix_beside_a_resizer_starts_in_its_steady_state() {
    let both =
        tasks("name='x'\n[[section]]\nkind='resize'\nupdates=[0.0,10.0]\nthreads=[1]\ndensity=7.0")
            .expect("valid");
    let mix = &both[1].workload;
    assert_eq!(
        mix.ids(),
        ["8192-16384", "8192", "16384"]
            .map(|b| format!("resize/i=65536,r=68986,u=10(9+1),uniform,n=1,b={b}"))
    );
    assert_eq!((both.len(), mix.initial), (2, 65536));
    // Half of the keys stay; the share of the others that is present is the share of inserts among
    // updates.
    let updated = mix.range / 2;
    let there = (mix.initial - updated) as f64 / updated as f64;
    assert!((there - 0.9).abs() < 1e-4, "{there}");
    for share in [0.0, 50.0, 100.0] {
        for initial in [1, 2, 999, 1 << 20] {
            let text = format!(
                "name='x'\n[[section]]\nkind='resize'\nthreads=[1]\nupdates=[1.0]\ninitial=[{initial}]\ninsert-share={share}"
            );
            assert_eq!(tasks(&text).map(|tasks| tasks.len()), Ok(1), "{text}");
        }
    }
}

#[test]
fn shipped_suites_are_valid_on_small_and_large_machines() {
    for (name, _) in SUITES {
        for cpus in [1, 2, 64] {
            let suite = Suite::find(name).expect(name);
            assert_eq!(suite.name, name);
            let tasks = suite.tasks(&Params::default(), &Topology::flat(cpus), true);
            assert!(
                tasks.is_ok_and(|tasks| !tasks.is_empty()),
                "{name} on {cpus}"
            );
        }
    }
}

#[test]
fn a_suite_reads_back_what_it_writes() {
    for (_, text) in SUITES {
        let suite = Suite::parse(text).expect("valid");
        assert_eq!(Suite::parse(&suite.to_toml()), Ok(suite));
    }
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    for (text, word) in [
        ("name='x'", "no [[section]]"),
        ("nam='x'", "line 1"),
        ("name='x'\n[[section]]\nkind='scailing'", "scailing"),
        (
            "name='x'\n[[section]]\nkind='scaling'\nthreds=[1]",
            "threds",
        ),
        (
            "name='x'\n[[section]]\nkind='scaling'\nthreads=[9]",
            "9 threads on 4 CPUs",
        ),
        (
            "name='x'\n[[section]]\nkind='scaling'\nthreads=['x']",
            "threads",
        ),
        (
            "name='x'\n[[section]]\nkind='scaling'\nthreads=['1..0']",
            "threads",
        ),
        (
            "name='x'\n[[section]]\nkind='scaling'\ndistribution=['zapf']",
            "zapf",
        ),
        (
            "name='x'\n[[section]]\nkind='scaling'\nupdates=[120.0]",
            "updates",
        ),
        (
            "name='x'\n[[section]]\nkind='scaling'\nrange=5\ndensity=5.0",
            "exclude",
        ),
        (
            "name='x'\n[[section]]\nkind='resize'\nupdates=[1.0]\ndistribution=['single']",
            "single (uniform",
        ),
        (
            "name='x'\n[[section]]\nkind='batch'\nbatch=[65]",
            "65 keys (1 to 64)",
        ),
        (
            "name='x'\n[[section]]\nkind='batch'\ndistribution=['single']",
            "single (uniform",
        ),
        (
            "name='x'\n[[section]]\nkind='scaling'\nrepetitions=0",
            "repetitions",
        ),
        (
            "name='x'\n[[section]]\nkind='pinning'\npin=['everywhere']",
            "everywhere",
        ),
    ] {
        let error = tasks(text).expect_err(text);
        assert!(
            error.contains(word) && !error.contains('\n'),
            "{text}: {error}"
        );
    }
}

#[test]
fn the_kind_of_entries_is_not_the_kind_of_the_section() {
    let text = "name='x'\n[[section]]\nkind='scaling'\nthreads=[1]\nentry-kind='bytes'";
    let kinds = |suite: &Suite| -> Vec<(String, String)> {
        let tasks = suite.tasks(&Params::default(), &Topology::flat(4), false);
        let of = |task: Task| (task.workload.section_name().into(), task.workload.kind);
        tasks.expect("valid").into_iter().map(of).collect()
    };
    let suite = Suite::parse(text).expect("valid");
    assert_eq!(kinds(&suite), [("scaling".into(), "bytes".into())]);
    // The suite written with results must be readable, or no row of them can be replayed.
    let given = Params {
        kind: Some("bytes".into()),
        ..Params::default()
    };
    let plain = Suite::parse("name='x'\n[defaults]\nkind='u64'\n[[section]]\nkind='scaling'");
    let plain = plain.expect("the old name is known where it is not ambiguous");
    assert_eq!(kinds(&plain)[0].1, "u64");
    let with = plain.with(&given);
    let read = Suite::parse(&with.to_toml()).expect("it is written so that it can be read");
    assert_eq!((kinds(&read), &read), (kinds(&with), &with));
    assert_eq!(kinds(&with)[0].1, "bytes");
}

/// Tables that the suite of all tables omits, and why.
const NOT_CHOSEN: [&str; 7] = [
    "dashmap",        // the reference
    "hashbrown",      // one thread only
    "mutex",          // `rwlock` represents locked maps; section `sync` has the locks
    "parking-rwlock", // as `mutex`
    "urcu-sync",      // as `urcu-memb`, but for claims of the thesis
    "slowed",         // calibrates verdicts
    "unslowed",       // calibrates verdicts
];

#[test]
fn the_suite_of_all_tables_has_all_tables() {
    let registry = crate::adapters::registry();
    let there = registry.chosen(&[]);
    let missing = registry
        .missing()
        .iter()
        .map(|missing| missing.name.clone());
    let all = there
        .into_iter()
        .chain(missing.filter(|name| !name.contains(':') && !name.contains("filter")));
    let suite = Suite::find("choosing").expect("it is shipped");
    let tables = suite.defaults.tables.expect("it names its tables");
    let named: Vec<&str> = tables
        .iter()
        .map(|name| name.trim_end_matches('?'))
        .collect();
    for name in all.filter(|name| !name.ends_with("null") && !NOT_CHOSEN.contains(&&**name)) {
        assert!(named.contains(&&*name), "{name}");
    }
}

#[test]
fn the_suite_of_all_tables_has_all_sections() {
    let suite = Suite::find("choosing").expect("it is shipped");
    let sections = sections::SECTIONS.iter();
    let of_maps = sections.filter(|section| section.capability() == Capability::Map);
    for kind in of_maps.map(|section| section.name()) {
        assert!(
            suite.section.iter().any(|section| section.kind == kind),
            "{kind}"
        );
    }
}

/// The machines of the papers: sockets, NUMA nodes of a socket, cores of a node, threads of a core.
const MACHINES: [(&str, [usize; 4]); 10] = [
    ("relativistic", [2, 1, 6, 2]),
    ("resize", [2, 1, 6, 2]),
    ("cphash", [8, 1, 10, 2]),
    ("nr", [4, 1, 14, 2]),
    ("thesis", [2, 1, 8, 2]),
    ("thesis", [4, 1, 12, 2]),
    ("thesis", [4, 2, 6, 1]),
    ("thesis", [1, 1, 61, 4]),
    ("elision", [2, 1, 16, 2]),
    ("filter", [2, 1, 16, 2]),
];

/// The made-up machines of a suite's paper, with the cells that the suite has there.
fn on_its_machines(suite: &Suite) -> Vec<(Topology, Vec<Task>)> {
    let its = MACHINES.iter().filter(|(of, _)| *of == suite.name);
    let cells = |(_, [sockets, nodes, cores, smt]): &(&str, [usize; 4])| {
        let machine = Topology::regular(*sockets, *nodes, *cores, *smt);
        let tasks = suite.tasks(&Params::default(), &machine, false);
        let tasks = tasks.unwrap_or_else(|what| panic!("{} on {machine}: {what}", suite.name));
        (machine, tasks)
    };
    its.map(cells).collect()
}

#[test]
fn the_machines_of_the_papers_decide_their_claims() {
    let mut decided = 0;
    for (name, _) in SUITES {
        let suite = Suite::find(name).expect(name);
        let machines = on_its_machines(&suite);
        for claim in &suite.claim {
            let has_cells = |(machine, tasks): &(Topology, Vec<Task>)| {
                let ids: Vec<String> = tasks.iter().flat_map(|of| of.workload.ids()).collect();
                let base = |id: &&String| match &claim.base {
                    Some(base) => ids.contains(&id.replace(&claim.cell, base)),
                    None => true,
                };
                let mut of = ids.iter().filter(|id| id.contains(&claim.cell));
                machine.cpus.len() >= claim.processors && of.any(|id| base(&id))
            };
            assert!(machines.iter().any(has_cells), "{name}: {claim:?}");
            decided += 1;
        }
    }
    assert!(decided > 80, "{decided}");
    assert!(Suite::find("thesis").is_ok_and(|suite| suite.claim.len() > 10));
    let without =
        "name='x'\n[[section]]\nkind='scaling'\n[[claim]]\nfigure='1'\nsays='y'\ncell=''\nof='a'";
    assert!(tasks(without).is_err_and(|what| what.contains("least")));
}

#[test]
fn node_replication_is_measured_node_by_node() {
    let suite = Suite::find("nr").expect("it is shipped");
    let [(machine, tasks)] = &on_its_machines(&suite)[..] else {
        panic!("not one machine")
    };
    let queues = tasks.iter().map(|task| &task.workload);
    let queues = queues.filter(|of| of.section_name() == "queue" && of.work() == 512);
    let counts: std::collections::BTreeSet<usize> = queues.map(|of| of.threads).collect();
    for (nodes, threads) in (1..).zip([28, 56, 84, 112]) {
        assert!(counts.contains(&threads), "{counts:?}");
        let places = corewise_topology::plan(machine, &tasks[0].workload.pin, threads);
        let node =
            |cpu: &Option<corewise_topology::CpuId>| machine.cpus[cpu.expect("pinned").0].node;
        let used: std::collections::BTreeSet<usize> = places.iter().map(node).collect();
        assert_eq!(
            used.len(),
            nodes,
            "{threads} threads fill the nodes one by one"
        );
    }
    assert_eq!(machine.node_ends(), [28, 56, 84, 112]);
}

#[test]
fn figures_of_the_thesis_have_its_threads() {
    let suite = Suite::find("thesis").expect("it is shipped");
    for (machine, tasks) in on_its_machines(&suite) {
        let cpus = machine.cpus.len();
        let socket = machine.group_ends(|cpu| cpu.package)[0];
        let threads = |is: &dyn Fn(&Workload) -> bool| {
            let those = tasks.iter().map(|task| &task.workload).filter(|of| is(of));
            let counts: std::collections::BTreeSet<usize> = those.map(|of| of.threads).collect();
            counts.into_iter().collect::<Vec<_>>()
        };
        // Figures 3.7 and 3.12 are curves over threads, figure 3.8 is of one socket.
        let is_scaling = |of: &Workload| of.section_name() == "scaling";
        let zipf = threads(&|of| is_scaling(of) && of.distribution != Distribution::Uniform);
        let balanced = threads(&|of| is_scaling(of) && of.pin == PinPolicy::Balanced);
        for curve in [zipf, balanced] {
            assert!(
                curve.len() > 4 && curve.ends_with(&[cpus]),
                "{machine}: {curve:?}"
            );
        }
        assert_eq!(threads(&|of| of.section_name() == "updates"), [socket]);
    }
}

#[test]
fn a_quick_run_has_the_parameters_for_it() {
    let text =
        "name='x'\n[quick]\ninitial=[7]\n[[section]]\nkind='scaling'\nthreads=[1]\ninitial=[9]";
    let suite = Suite::parse(text).expect("valid");
    assert_eq!(Suite::parse(&suite.to_toml()), Ok(suite.clone()));
    let first = |suite: &Suite| {
        let tasks = suite.tasks(&Params::default(), &Topology::flat(4), false);
        let task = tasks.expect("valid").remove(0);
        (task.workload.initial, task.repetitions)
    };
    assert_eq!(first(&suite), (9, 15));
    let fewer = text.replace("threads=[1]", "threads=[1]\nrepetitions=2");
    let fewer = Suite::parse(&fewer).expect("valid").quickly();
    assert_eq!(first(&fewer), (7, 2), "no more than the whole run has");
    let quick = suite.quickly();
    assert_eq!(first(&quick), (7, 5));
    assert_eq!(Suite::parse(&quick.to_toml()), Ok(quick));
}

/// Five repetitions are the fewest with a verdict. (The section `memory` has none.)
#[test]
fn quick_runs_have_verdicts() {
    for (name, _) in SUITES {
        let suite = Suite::find(name).expect(name).quickly();
        let tasks = suite.tasks(&Params::default(), &Topology::flat(2), false);
        for task in tasks.expect("valid") {
            let of = &task.workload;
            let is_judged = of.section_name() != "memory";
            assert!(!is_judged || task.repetitions >= 5, "{name}: {}", of.id());
        }
    }
}

#[test]
fn the_suites_of_papers_end_in_time() {
    let minutes = |suite: &Suite| {
        let tasks = suite.tasks(&Params::default(), &Topology::flat(2), false);
        let seconds = |task: &Task| {
            // All tables if none is named; the reference again, and the null subject.
            const ALL: usize = 24;
            let tables = match task.tables.len() {
                0 => ALL,
                some => some,
            };
            sections::section_of(&task.workload).seconds(task, tables + 2)
        };
        tasks.expect("valid").iter().map(seconds).sum::<f64>() / 60.0
    };
    for (name, _) in SUITES {
        let suite = Suite::find(name).expect(name);
        let (whole, quick) = (minutes(&suite), minutes(&suite.quickly()));
        assert!(
            whole <= 25.0 && quick <= 4.0,
            "{name}: {whole}, {quick} minutes"
        );
    }
}
