//! Two processes share a yard by name. The producer writes messages into blocks of 4 KiB and 2 MiB and sends their frame
//! numbers through a pipe. The consumer reads the messages in place and frees the blocks.
//!
//! Run it without arguments: the program starts itself again as the consumer.

use std::env;
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::process::{Command, Stdio};

use frameyard_host::{ByteSize, Gfp, HostYard, MappedFrames, Order, PageCount, Pfn, PfnRange};

const SMALL: Order = Order(0); // 4 KiB
const LARGE: Order = Order(9); // 2 MiB

/// Set in the consumer: the name of the yard.
const NAME: &str = "FRAMEYARD_EXAMPLE_NAME";

fn main() -> Result<(), Box<dyn Error>> {
    match env::var(NAME) {
        Ok(name) => consume(&name),
        Err(_) => produce(),
    }
}

fn produce() -> Result<(), Box<dyn Error>> {
    let name = format!("two-processes-{}", std::process::id());
    let yard = HostYard::create_shared(&name, ByteSize::mib(64))?;
    let free = yard.stats().free_pages();

    let mut consumer = Command::new(env::current_exe()?).env(NAME, &name).stdin(Stdio::piped()).spawn()?;
    let mut pipe = consumer.stdin.take().ok_or("the consumer has a pipe")?;
    for message in 0..100_u32 {
        let order = if message % 10 == 0 { LARGE } else { SMALL };
        let mut block = yard.frames(order, Gfp::HIGHUSER_MOVABLE)?;
        block.bytes_mut()[..4].copy_from_slice(&message.to_le_bytes());
        // The block now belongs to the process that reads the line.
        let range = block.into_range();
        writeln!(pipe, "{} {}", range.start.0, range.count().0)?;
    }
    drop(pipe);

    assert!(consumer.wait()?.success());
    assert_eq!(yard.stats().free_pages(), free, "the consumer has freed all blocks");
    Ok(())
}

fn consume(name: &str) -> Result<(), Box<dyn Error>> {
    // SAFETY: only this program writes to the file, as two processes.
    let yard = unsafe { HostYard::open_shared(name)? };
    let mut expected = 0_u32;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (first, count) = line.split_once(' ').ok_or("a line has two numbers")?;
        let range = PfnRange::new(Pfn(first.parse()?), PageCount(count.parse()?));
        // SAFETY: the producer has passed this range on and uses it no more.
        let block = unsafe { MappedFrames::from_range(&yard, range)? };
        assert_eq!(block.bytes()[..4], expected.to_le_bytes());
        expected += 1;
    }
    println!("read {expected} messages in place");
    Ok(())
}
