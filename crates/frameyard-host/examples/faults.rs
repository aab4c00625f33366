//! Repeats page faults, or fast pins, for counting their instructions with callgrind.
//!
//! ```sh
//! cargo build --release -p frameyard-host --example faults
//! valgrind --tool=callgrind target/release/examples/faults fault 10000
//! valgrind --tool=callgrind target/release/examples/faults pin 10000
//! ```
//!
//! With `shared` as the third argument, in a shared yard, whose frames other processes may overwrite.
//!
//! The difference of two runs, divided by the difference of their counts, is the cost of one fault, or of one pin with its release.

use std::error::Error;

use frameyard::{ByteSize, Pfn};
use frameyard_host::HostYard;
use frameyard_vm::{
    Dirty, HugeAdvice, MapRequest, MemoryAccess, PinPath, PinRequest, RefHandling, VirtAddr, Vm, VmConfig,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_else(|| "fault".into());
    let count: u64 = arguments.next().map_or(Ok(1000), |count| count.parse())?;
    let size = ByteSize::mib(256);
    match arguments.next().as_deref() {
        None => repeat(&HostYard::with_memory(size)?, &what, count),
        Some("shared") => {
            let yard = HostYard::create_shared(format!("faults-{}", std::process::id()), size)?;
            repeat(&yard, &what, count)
        }
        Some(other) => Err(format!("{other}: the third argument is `shared` or none").into()),
    }
}

fn repeat(yard: &HostYard, what: &str, count: u64) -> Result<(), Box<dyn Error>> {
    let vm = Vm::create(yard.core(), &VmConfig::default())?;
    let space = vm.create_space()?;
    let pages = if what == "fault" { count } else { 512 };
    let memory = space.map(MapRequest::anonymous(ByteSize::kib(4 * pages)).advised(HugeAdvice::Never))?;
    let page = |number: u64| VirtAddr(memory.start.0 + number * 4096);
    for number in 0..pages {
        space.touch(page(number), MemoryAccess::Write)?;
    }
    if what == "pin" {
        let mut frame = [Pfn(0)];
        for number in 0..count {
            space.take_pages(page(number % pages), PinRequest::PIN.by(PinPath::FastOnly), &mut frame)?;
            vm.unpin_pages(&frame, RefHandling::Batched, Dirty::Keep)?;
        }
    }
    Ok(())
}
