//! Which line a search finds.

use crate::store::bits::bitmap::tests::*;

/// A fixture whose lines have these numbers of free frames, from the first frame of each on.
fn with_free(order: u8, free: &[usize]) -> Fixture {
    let fixture = Fixture::empty(free.len(), order);
    for (line, count) in free.iter().enumerate() {
        fixture.free_at(line, 0..*count);
        // Listed by the shape it has now, not by the one at its first free.
        relist(&fixture, line);
    }
    fixture
}

fn relist(fixture: &Fixture, line: usize) {
    let range = line..line + 1;
    if let Some(found) = fixture.bits.reserve_line(&Plain, (MOVABLE, Order(0)), range, 0) {
        fixture.leave(found);
    }
}

#[test]
fn the_fullest_line_comes_first() {
    let fixture = with_free(9, &[512, 300, 20, 400, 150, 0]);
    let found: Vec<_> = core::iter::from_fn(|| fixture.reserve(0)).collect();
    assert_eq!(found, [2, 4, 1, 3, 0], "a line without free frames is not found");
    found.into_iter().for_each(|line| fixture.leave(line));
    fixture.assert_sound();
    let again: Vec<_> = core::iter::from_fn(|| fixture.reserve(0)).collect();
    assert_eq!(again, [2, 4, 1, 3, 0]);
}

#[test]
fn of_equally_full_lines_those_with_smaller_runs_come_first() {
    let fixture = Fixture::empty(3, 9);
    fixture.free_at(0, 0..32);
    fixture.free_at(1, (0..64).step_by(2));
    fixture.free_at(2, (0..48).filter(|offset| offset % 3 != 2));
    (0..3).for_each(|line| relist(&fixture, line));
    let found: Vec<_> = core::iter::from_fn(|| fixture.reserve(0)).collect();
    assert_eq!(found, [1, 2, 0]);
}

#[test]
fn a_search_by_run_finds_lines_with_such_a_run_alone() {
    for order in 1..=9u8 {
        let fixture = Fixture::empty(usize::from(order) + 1, order);
        // Line n has a run of order n and single frames.
        for run in 0..=order {
            let end = 1usize << run;
            fixture.free_at(usize::from(run), (0..end).chain((end.max(2)..1 << order).step_by(2)));
            relist(&fixture, usize::from(run));
        }
        for wanted in 0..=order {
            let mut found: Vec<_> = core::iter::from_fn(|| fixture.reserve(wanted)).collect();
            found.sort_unstable();
            assert_eq!(
                found,
                (usize::from(wanted)..=usize::from(order)).collect::<Vec<_>>(),
                "run {wanted} of {order}"
            );
            found.into_iter().for_each(|line| fixture.leave(line));
            fixture.assert_sound();
        }
    }
}

#[test]
fn a_free_that_makes_a_run_larger_lists_the_line_anew() {
    let fixture = Fixture::empty(1, 9);
    fixture.free_at(0, [0]);
    for order in 0..9 {
        assert_eq!(fixture.reserve(order + 1), None);
        fixture.bits.free(&Plain, 1 << order, Order(order)).unwrap();
        fixture.assert_sound();
        let line = fixture.reserve(order + 1).expect("the run is listed");
        fixture.leave(line);
    }
    fixture.assert_all_free();
}

#[test]
fn lines_far_apart_are_found_through_the_summaries() {
    const LINES: usize = 3 * 4096 + 70;
    let fixture = Fixture::empty(LINES, 3);
    let lines = [0, 63, 64, 65, 4095, 4096, 4097, 8191, 8192, 12_287, 12_288, LINES - 1];
    for line in lines {
        fixture.free_at(line, 0..4);
    }
    let found: Vec<_> = core::iter::from_fn(|| fixture.reserve(2)).collect();
    assert_eq!(found, lines);
    assert_eq!(fixture.reserve(0), None);
    found.iter().for_each(|line| fixture.leave(*line));
    fixture.assert_sound();
    // From a start, and then around.
    for start in [0, 1, 64, 4096, 5000, 12_288, LINES - 1, LINES, LINES + 5] {
        let found: Vec<_> =
            core::iter::from_fn(|| fixture.bits.reserve_line(&Plain, (MOVABLE, Order(0)), 0..LINES, start)).collect();
        let (before, after): (Vec<_>, Vec<_>) = lines.iter().partition(|line| **line < start.min(LINES));
        assert_eq!(found, [after, before].concat(), "from {start}");
        found.iter().for_each(|line| fixture.leave(*line));
        fixture.assert_sound();
    }
}

#[test]
fn ranges_may_begin_and_end_in_the_middle_of_words() {
    let fixture = Fixture::free(9000, 1);
    for range in [10..20, 0..1, 60..70, 64..128, 63..64, 4090..4100, 100..8300, 8999..9000, 50..50] {
        let whole = || fixture.bits.take_whole(&Plain, MOVABLE, (range.clone(), range.start + 3), |_| MOVABLE);
        let mut found: Vec<_> = core::iter::from_fn(whole).collect();
        found.sort_unstable();
        assert_eq!(found, range.clone().collect::<Vec<_>>());
        for line in found {
            fixture.bits.free_whole(&Plain, (line, MOVABLE)).unwrap();
        }
    }
    fixture.assert_all_free();
}

#[test]
fn types_have_lists_of_their_own() {
    let fixture = Fixture::empty(3, 9);
    let types = [MigrateType::Unmovable, MOVABLE, MigrateType::Reclaimable];
    for (line, list_type) in types.into_iter().enumerate() {
        fixture.bits.free_whole(&Plain, (line, list_type)).unwrap();
        assert_eq!(fixture.bits.standing_racy(&Plain, line), Standing::Whole, "{list_type}");
    }
    for (line, list_type) in types.into_iter().enumerate() {
        let reserve = || fixture.bits.reserve(&Plain, (list_type, Order(0)), (0..3, 0), |line| types[line]);
        assert_eq!(reserve(), Some(line));
        assert_eq!(reserve(), None);
        assert_eq!(fixture.bits.next_reserved(&Plain, list_type, 0..3), Some(line));
        fixture.bits.leave(&Plain, line, list_type);
        assert_eq!(fixture.bits.next_reserved(&Plain, list_type, 0..3), None);
        assert_eq!(fixture.bits.take_whole(&Plain, list_type, (0..3, 0), |line| types[line]), Some(line));
    }
}

#[test]
fn a_search_for_a_whole_line_finds_a_run_that_was_just_freed() {
    let fixture = Fixture::empty(2, 9);
    fixture.bits.free(&Plain, 512 + 64, Order(6)).unwrap();
    let reserve = || fixture.bits.reserve_partly_free(&Plain, (MOVABLE, Order(6)), (0..2, 0));
    assert_eq!(reserve(), None, "it is only noted");
    assert_eq!(fixture.bits.take_whole(&Plain, MOVABLE, (0..2, 0), |_| MOVABLE), None);
    assert_eq!(reserve(), Some(1));
    assert_eq!(reserve(), None);
}

#[test]
fn a_listed_line_keeps_its_type() {
    let fixture = Fixture::empty(1, 9);
    fixture.free_at(0, [0]);
    fixture.leave(fixture.reserve(0).expect("it is listed"));
    fixture.free_at(0, [1]);
    let unmovable = (MigrateType::Unmovable, Order(0));
    assert_eq!(fixture.bits.reserve(&Plain, unmovable, (0..1, 0), |_| MigrateType::Unmovable), None);
    assert_eq!(fixture.reserve(1), Some(0));
}

#[test]
fn frames_freed_into_a_reserved_line_are_listed_when_it_is_left() {
    let fixture = Fixture::free(1, 9);
    let line = fixture.reserve(0).unwrap();
    let words: Vec<_> = (0..8).map(|at| fixture.take_word(line, at)).collect();
    assert_eq!(words, [u64::MAX; 8]);
    fixture.free_at(0, [5]);
    assert_eq!(fixture.reserve(0), None);
    fixture.leave(line);
    fixture.assert_sound();
    assert_eq!(fixture.reserve(0), Some(0));
    assert_eq!(fixture.claim(0, Order(0)), Some(5));
    fixture.leave(0);
    fixture.assert_sound();
    fixture.free_at(0, 0..512);
    fixture.assert_all_free();
}

#[test]
fn a_line_that_is_left_twice_is_left_once() {
    let fixture = Fixture::free(2, 9);
    let line = fixture.reserve(0).unwrap();
    fixture.leave(line);
    fixture.leave(line);
    fixture.assert_all_free();
}

#[test]
fn lines_listed_as_whole_that_are_not_are_listed_anew() {
    let fixture = Fixture::free(200, 9);
    let all: Vec<_> = core::iter::from_fn(|| fixture.reserve(0)).collect();
    all.into_iter().for_each(|line| fixture.leave(line));
    // Another CPU takes from lines without reserving them.
    for line in 0..199 {
        assert!(fixture.claim(line, Order(0)).is_some());
    }
    assert_eq!(fixture.bits.take_whole(&Plain, MOVABLE, (0..200, 0), |_| MOVABLE), Some(199));
    assert_eq!(fixture.bits.take_whole(&Plain, MOVABLE, (0..200, 0), |_| MOVABLE), None);
    fixture.assert_sound();
    assert_eq!(fixture.reserve(9), None);
    assert_eq!(core::iter::from_fn(|| fixture.reserve(8)).count(), 199);
}

#[test]
fn stale_hints_of_any_kind_are_cleared() {
    let fixture = Fixture::free(9000, 2);
    // Another process sets all hints of all lists.
    for table in fixture.bits.listing.levels_for_tests() {
        table.iter().for_each(|word| word.store(u64::MAX, crate::sync::Ordering::Relaxed));
    }
    assert_eq!(core::iter::from_fn(|| fixture.reserve(0)).count(), 9000);
    assert_eq!(fixture.reserve(0), None);
    (0..9000).for_each(|line| fixture.leave(line));
    fixture.assert_all_free();
}

#[test]
fn lines_that_are_freed_together_are_found_in_each_word_and_list() {
    let fixture = Fixture::empty(200, 9);
    let types = [MOVABLE, MigrateType::Unmovable];
    // Neighbours in several words of hints, with a change of type inside a word, and some far apart.
    let lines: Vec<(usize, MigrateType)> =
        (3..140).chain([199, 150]).map(|line| (line, types[usize::from(line % 50 > 30)])).collect();
    assert_eq!(fixture.bits.free_several_whole(&Plain, lines.iter().copied()), (lines.len(), Ok(())));
    fixture.assert_sound();
    for list_type in types {
        let mut expected: Vec<usize> = lines.iter().filter(|line| line.1 == list_type).map(|line| line.0).collect();
        expected.sort_unstable();
        let mut found: Vec<usize> =
            std::iter::from_fn(|| fixture.bits.take_whole(&Plain, list_type, (0..fixture.lines, 0), |_| list_type))
                .collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{list_type}");
    }
    let twice = [(7, MOVABLE), (7, MOVABLE), (8, MOVABLE)];
    assert_eq!(fixture.bits.free_several_whole(&Plain, twice.into_iter()), (3, Err(AlreadyFree)));
    fixture.assert_sound();
}
