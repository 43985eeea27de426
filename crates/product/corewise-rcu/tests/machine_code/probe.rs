//! Functions whose machine code `machine_code.rs` reads. It is a separate program, so that it is
//! compiled like a user's crate.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, fence};

use corewise_rcu::{Domain, Qsbr, RcuCell, pin};

#[unsafe(no_mangle)]
#[inline(never)]
fn probe_guard(place: &AtomicUsize) -> usize {
    let _guard = pin();
    place.load(Relaxed)
}

#[unsafe(no_mangle)]
#[inline(never)]
fn probe_nested_guards(place: &AtomicUsize) -> usize {
    let _outer = pin();
    let _inner = pin();
    place.load(Relaxed)
}

#[unsafe(no_mangle)]
#[inline(never)]
fn probe_domain_guard(domain: &Domain, place: &AtomicUsize) -> usize {
    let _guard = domain.pin();
    place.load(Relaxed)
}

#[unsafe(no_mangle)]
#[inline(never)]
fn probe_cell(cell: &RcuCell<AtomicUsize>) -> usize {
    cell.load().load(Relaxed)
}

#[unsafe(no_mangle)]
#[inline(never)]
fn probe_qsbr(qsbr: &mut Qsbr<'_>, place: &AtomicUsize) -> usize {
    let section = qsbr.section();
    let value = place.load(Relaxed);
    black_box(section);
    qsbr.quiescent();
    value
}

#[unsafe(no_mangle)]
#[inline(never)]
fn broken_by_a_fence(place: &AtomicUsize) -> usize {
    let _guard = pin();
    fence(SeqCst);
    place.load(Relaxed)
}

#[unsafe(no_mangle)]
#[inline(never)]
fn broken_by_a_swap(place: &AtomicUsize) -> usize {
    let _guard = pin();
    place.swap(1, Relaxed)
}

#[unsafe(no_mangle)]
#[inline(never)]
fn broken_by_a_store(place: &AtomicUsize) -> usize {
    let _guard = pin();
    place.store(1, SeqCst);
    place.load(Relaxed)
}

#[unsafe(no_mangle)]
#[inline(never)]
fn broken_by_an_addition(place: &AtomicUsize) -> usize {
    let _guard = pin();
    place.fetch_add(1, Relaxed)
}

/// The forbidden instruction is in a called function.
#[unsafe(no_mangle)]
#[inline(never)]
fn broken_by_a_call(place: &AtomicUsize) -> usize {
    let guard = pin();
    let value = broken_by_a_fence(place);
    drop(guard);
    value
}

fn main() {
    let domain = Domain::new();
    let mut qsbr = domain.qsbr();
    let place = AtomicUsize::new(0);
    let cell = RcuCell::new(AtomicUsize::new(0));
    let mut sum = probe_cell(&cell) + probe_domain_guard(&domain, &place) + probe_qsbr(&mut qsbr, &place);
    for probe in [
        probe_guard,
        probe_nested_guards,
        broken_by_a_fence,
        broken_by_a_swap,
        broken_by_a_store,
        broken_by_an_addition,
        broken_by_a_call,
    ] {
        sum += probe(&place);
    }
    black_box(sum);
}
