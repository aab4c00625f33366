//! A bounded queue through which tasks of one process hand each other address ranges to free.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::runtime::Piece;

/// The queue. Once closed it accepts nothing more; pieces in it can still be taken.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<Piece>,
    is_closed: bool,
}

impl Exchange {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a piece. Waits while `bound` pieces or more are queued.
    ///
    /// # Errors
    ///
    /// The piece, if the queue is closed.
    pub(crate) fn put(&self, piece: Piece, bound: usize) -> Result<(), Piece> {
        let mut queue = self.queue();
        while queue.pieces.len() >= bound && !queue.is_closed {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if queue.is_closed {
            return Err(piece);
        }
        queue.pieces.push_back(piece);
        drop(queue);
        self.changed.notify_all();
        Ok(())
    }

    /// Takes the oldest piece. Waits for one; `None` when the queue is closed and empty.
    pub(crate) fn take(&self) -> Option<Piece> {
        let mut queue = self.queue();
        loop {
            if let Some(piece) = queue.pieces.pop_front() {
                drop(queue);
                self.changed.notify_all();
                return Some(piece);
            }
            if queue.is_closed {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Closes the queue.
    pub(crate) fn close(&self) {
        self.queue().is_closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frameyard::CpuId;
    use frameyard_vm::{VirtAddr, VirtRange};

    fn piece(start: u64) -> Piece {
        (VirtRange { start: VirtAddr(start), end: VirtAddr(start + 1) }, CpuId(0))
    }

    #[test]
    fn put_waits_for_room_and_take_waits_for_a_piece() {
        let exchange = Exchange::default();
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| std::iter::from_fn(|| exchange.take()).count());
            for start in 0..100 {
                exchange.put(piece(start), 2).unwrap();
            }
            exchange.close();
            assert_eq!(taker.join().unwrap(), 100);
        });
    }

    #[test]
    fn a_closed_queue_refuses_pieces_and_runs_empty() {
        let exchange = Exchange::default();
        exchange.put(piece(1), 1).unwrap();
        exchange.close();
        assert_eq!(exchange.put(piece(2), 9), Err(piece(2)));
        assert_eq!((exchange.take(), exchange.take()), (Some(piece(1)), None));
    }
}
