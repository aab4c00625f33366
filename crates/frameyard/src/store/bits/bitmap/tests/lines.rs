//! Lines by themselves.

use crate::store::bits::bitmap::tests::*;

/// The order of the largest free run among some bits, one frame at a time.
pub(super) fn largest_run_of(free: &[bool]) -> Option<Order> {
    (0..=free.len().ilog2() as u8)
        .rev()
        .map(Order)
        .find(|order| free.chunks_exact(1 << order.0).any(|run| run.iter().all(|frame| *frame)))
}

/// The same with the number of free frames.
pub(super) fn shape_of(free: &[bool]) -> Option<Shape> {
    let run = largest_run_of(free)?;
    Some(Shape { free: free.iter().filter(|frame| **frame).count() as u32, run })
}

fn bits_of(fixture: &Fixture) -> Vec<bool> {
    (0..fixture.frames()).map(|place| fixture.bits.is_free_racy(place)).collect()
}

#[test]
fn shapes_are_those_of_a_count_frame_by_frame() {
    let mut random = Random(7);
    for order in 0..=9 {
        for round in 0..200 {
            let fixture = Fixture::empty(1, order);
            // Runs of random places and lengths: few frames, or nearly all.
            for _ in 0..1 + round % 12 {
                let start = random.below(fixture.frames());
                let most = 1 << random.below(usize::from(order) + 1);
                let end = (start + 1 + random.below(most)).min(fixture.frames());
                let run = (start..end).filter(|place| !fixture.bits.is_free_racy(*place));
                fixture.free_at(0, run.collect::<Vec<_>>());
            }
            assert_eq!(fixture.line(0).shape(&Plain), shape_of(&bits_of(&fixture)), "order {order}");
            fixture.assert_sound();
        }
    }
}

#[test]
fn a_line_without_free_frames_has_no_shape() {
    let fixture = Fixture::empty(1, 9);
    assert_eq!(fixture.line(0).shape(&Plain), None);
    assert!(
        Order(0).pages().0 == 1 && (0..9).all(|order| fixture.line(0).claim(&Plain, Order(order)) == Claimed::Nothing)
    );
    assert_eq!(fixture.line(0).claim_whole(&Plain), Claimed::Nothing);
}

#[test]
fn a_claim_takes_the_run_that_is_part_of_no_larger_one() {
    let fixture = Fixture::empty(1, 9);
    // A run of order 2, one of order 1 and a single frame.
    fixture.free_at(0, [4, 5, 6, 7, 10, 11, 17]);
    let claims = [0, 1, 0, 0, 1].map(|order| fixture.line(0).claim(&Plain, Order(order)));
    assert_eq!(claims, [Claimed::At(17), Claimed::At(10), Claimed::At(4), Claimed::At(5), Claimed::At(6)]);
    assert_eq!(fixture.line(0).claim(&Plain, Order(0)), Claimed::Nothing);
}

#[test]
fn each_order_can_be_claimed_until_nothing_is_left() {
    for line_order in 1..=9 {
        for order in 0..line_order {
            let fixture = Fixture::free(1, line_order);
            let mut places: Vec<_> = core::iter::from_fn(|| fixture.claim(0, Order(order))).collect();
            places.sort_unstable();
            let all: Vec<_> = (0..fixture.frames()).step_by(1 << order).collect();
            assert_eq!(places, all, "order {order} of a line of order {line_order}");
            for place in places {
                fixture.bits.free(&Plain, place, Order(order)).unwrap();
            }
            fixture.assert_all_free();
        }
    }
}

#[test]
fn blocks_of_several_words_need_aligned_words_that_are_full() {
    let fixture = Fixture::empty(1, 9);
    fixture.free_at(0, 64..192);
    assert_eq!(fixture.claim(0, Order(7)), None, "words 1 and 2 are no aligned pair");
    fixture.free_at(0, 0..64);
    fixture.free_at(0, 193..512);
    assert_eq!(fixture.claim(0, Order(8)), Some(256));
    assert_eq!(fixture.claim(0, Order(8)), None);
    assert_eq!(fixture.claim(0, Order(7)), Some(0));
    assert_eq!(fixture.claim(0, Order(7)), None);
    fixture.assert_sound();
}

#[test]
fn words_are_taken_with_all_of_their_frames() {
    let fixture = Fixture::free(1, 9);
    assert_eq!(fixture.claim(0, Order(0)), Some(0));
    assert_eq!(fixture.take_word(0, 0), u64::MAX << 1);
    assert_eq!(fixture.take_word(0, 0), 0);
    assert_eq!(fixture.take_word(0, 8), 0, "there is no such word");
    assert_eq!(fixture.take_word(1, 0), 0, "there is no such line");
    fixture.free_at(0, 0..64);
    fixture.assert_all_free();
}

#[test]
fn frames_that_were_free_are_free_once() {
    for (line_order, order) in [(9, 0), (9, 6), (9, 7), (9, 8), (4, 2)] {
        let fixture = Fixture::free(1, line_order);
        assert_eq!(fixture.bits.free(&Plain, 0, Order(order)), Err(AlreadyFree));
        assert_eq!(fixture.bits.free_some(&Plain, &[0, 1], Order(0)), (1, Err(AlreadyFree)));
        assert_eq!(fixture.bits.free_whole(&Plain, (0, MOVABLE)), Err(AlreadyFree));
        // With bits, too.
        fixture.bits.open(&Plain, 0);
        assert_eq!(fixture.bits.free(&Plain, 0, Order(order)), Err(AlreadyFree));
        assert_eq!(fixture.bits.free_some(&Plain, &[0, 1], Order(0)), (2, Err(AlreadyFree)));
        fixture.assert_all_free();
    }
}

#[test]
fn a_block_that_was_free_in_part_is_listed_with_the_rest() {
    for free_first in [0, 64] {
        let fixture = Fixture::empty(1, 9);
        fixture.free_at(0, free_first..free_first + 64);
        let line = fixture.reserve(6).unwrap();
        assert_eq!(fixture.take_word(line, free_first / 64), u64::MAX);
        fixture.leave(line);
        // The line is on no list now. Its other word is free, and its first or second is freed twice.
        assert!(fixture.line(0).put_some(&Plain, &[free_first as u32], Order(6)).0.is_new);
        assert_eq!(fixture.bits.free(&Plain, 0, Order(7)), Err(AlreadyFree));
        fixture.assert_sound();
    }
}

#[test]
fn bits_beyond_a_small_line_are_no_frames() {
    let fixture = Fixture::empty(2, 4);
    fixture.bits.words[0].store(0xffff_ffff_ffff_0000, crate::sync::Ordering::Relaxed);
    assert_eq!(fixture.line(0).shape(&Plain), None);
    assert!((0..4).all(|order| fixture.line(0).claim(&Plain, Order(order)) == Claimed::Nothing));
    assert_eq!(fixture.take_word(0, 0), 0);
}

#[test]
fn places_outside_the_yard_are_refused() {
    let fixture = Fixture::free(2, 9);
    for place in [1024, usize::MAX, usize::MAX >> 9] {
        assert!(fixture.bits.free(&Plain, place, Order(0)).is_err());
        assert!(!fixture.bits.is_free_racy(place));
    }
    assert!(fixture.bits.free_whole(&Plain, (2, MOVABLE)).is_err());
    assert_eq!(fixture.claim(2, Order(0)), None);
    fixture.leave(2);
    fixture.assert_all_free();
}

#[test]
fn large_pageblocks_have_several_lines() {
    let fixture = Fixture::free(3, 11);
    assert_eq!((fixture.lines, fixture.bits.words_of_line()), (12, 8));
    fixture.assert_all_free();
}
