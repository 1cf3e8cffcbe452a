//! Tests of the parent module.

use super::*;

fn namespace(name: &str) -> Namespace {
    Namespace::new(name).unwrap()
}

fn filled(memory: &Arc<BodyMemory>, name: &str, count: usize, bytes: usize) -> Vec<BodyShare> {
    let mut shares: Vec<BodyShare> = (0..count).map(|_| memory.share(namespace(name))).collect();
    shares.retain_mut(|share| share.try_grow(bytes));
    shares
}

#[test]
fn one_namespace_gets_half_of_the_memory_and_each_of_two_a_third() {
    let memory = BodyMemory::new(1_200);
    let a = filled(&memory, "a", 100, 10);
    assert_eq!(a.len(), 60);
    drop(a);
    let mut shares = Vec::new();
    for _ in 0..100 {
        shares.extend(filled(&memory, "a", 1, 10));
        shares.extend(filled(&memory, "b", 1, 10));
    }
    let of = |name: &str| shares.iter().filter(|share| share.namespace == namespace(name)).count();
    assert_eq!((of("a"), of("b")), (40, 40));
    assert_eq!(filled(&memory, "c", 100, 10).len(), 20, "there is something left for the next one");
}

#[test]
fn the_oldest_body_of_a_namespace_is_not_held_up_by_its_own_namespace() {
    let memory = BodyMemory::new(1_000);
    let mut bodies = filled(&memory, "a", 5, 100);
    assert!(!bodies[1].try_grow(100), "BM1");
    assert!(bodies[0].try_grow(400));
    assert!(!memory.share(namespace("b")).try_grow(101), "100 bytes are free");
    // A complete body needs no more, so the next one is the oldest.
    bodies[0].complete();
    assert!(bodies[1].try_grow(100) && !bodies[2].try_grow(1));
    assert!(bodies[1].try_grow(700), "BM2: one body may be counted beyond the limit");
    assert!(!memory.share(namespace("b")).try_grow(1));
    bodies.clear();
    assert!(memory.lock().namespaces.is_empty() && memory.lock().used == 0);
    assert!(memory.share(namespace("b")).try_grow(500));
}

/// Bodies of many sizes arrive, grow, complete and are dropped in a random order.
#[test]
fn whatever_the_order_memory_is_bounded_and_some_body_can_go_on() {
    let seed = std::env::var("ONWARD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand_seed);
    eprintln!("ONWARD_SEED={seed}");
    let mut state: u64 = seed;
    let mut below = |max: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % max
    };
    const LIMIT: usize = 10_000;
    const BODY_MAX: usize = 1_500;
    let memory = BodyMemory::new(LIMIT);
    // Share, missing bytes, and whether the body is complete.
    let mut bodies: Vec<(BodyShare, usize, bool)> = Vec::new();
    for _ in 0..20_000 {
        if bodies.len() < 40 && below(3) == 0 {
            let name = format!("n{}", below(6));
            bodies.push((memory.share(namespace(&name)), 1 + below(BODY_MAX as u64) as usize, false));
        }
        if bodies.is_empty() {
            continue;
        }
        let at = below(bodies.len() as u64) as usize;
        let (share, missing, is_complete) = &mut bodies[at];
        if *is_complete || below(50) == 0 {
            bodies.swap_remove(at);
            continue;
        }
        let more = (*missing).min(1 + below(400) as usize);
        if share.try_grow(more) {
            *missing -= more;
            if *missing == 0 {
                share.complete();
                *is_complete = true;
            }
        }
        let used = memory.lock().used;
        assert_eq!(used, bodies.iter().map(|(share, ..)| share.bytes).sum::<usize>());
        assert!(used <= LIMIT + BODY_MAX, "BM2: {used}");
        let counts = memory.lock();
        let mut arriving = bodies.iter().filter(|(_, _, is_complete)| !is_complete).peekable();
        let can_grow =
            |(share, missing, _): &(BodyShare, usize, bool)| counts.may_grow(LIMIT, &share.namespace, share.number, *missing);
        assert!(arriving.peek().is_none() || arriving.any(can_grow), "BM3");
    }
}

fn rand_seed() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}
