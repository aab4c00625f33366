//! Lines that go from core to core, and out of caches.

use frameyard::platform::{Access, LineKind, LockId};
use frameyard::{NodeId, PageCount, Pfn, PfnRange, ZoneId};

use super::speed::AccessKind;
use super::*;
use crate::account::Accessed;
use crate::machine::Machine;

const CONTROL: usize = 0x1000;
const LINE: Accessed = Accessed::Line(LineKind::Mechanism);

/// A machine of 1 GHz whose accesses cost a nanosecond, and what their cause says.
fn engine() -> Engine {
    engine_with(|_| {})
}

/// The same with changes.
fn engine_with(change: impl FnOnce(&mut Machine)) -> Engine {
    let mut machine = Machine::built_in("broadwell-40").unwrap();
    machine.clock.mhz = vec![1000];
    machine.clock.smt_slowdown = 1.0;
    machine.costs.store_overlap = 1.0;
    machine.costs.access_cycles = 1.0;
    machine.costs.atomic_cycles = 0.0;
    change(&mut machine);
    let node = |node: u16| (PfnRange::new(Pfn(0x1000 + 0x8000 * u64::from(node)), PageCount(0x8000)), NodeId(node));
    let frames = PfnRange::new(Pfn(0x1000), PageCount(0x10000));
    let regions = YardRegions {
        frames,
        nodes: vec![node(0), node(1)],
        control: (CONTROL, 1 << 20),
        bytes: (0, 0),
        map: 0,
        host_pages: HostPages::Huge,
    };
    let costs = KernelCost::ALL.map(KernelCost::name).to_vec();
    let mut engine = Engine::new(&machine, regions, costs).unwrap();
    engine.begin(&(0..40).collect::<Vec<_>>());
    engine
}

impl Engine {
    fn on(&mut self, cpu: usize) -> &mut Self {
        self.set_current(cpu);
        self
    }

    /// How the last access of a kind was served, on the CPU that runs, since `before`.
    fn served(&mut self, accessed: Accessed, access: impl FnOnce(&mut Self)) -> (Cause, Picos) {
        let before = self.account();
        access(self);
        let since = self.account().since(&before);
        let of = |cause: &Cause| since.of(Spent::Access(accessed, *cause));
        let waits = [Cause::LineQueue, Cause::Bandwidth];
        let cause =
            Cause::ALL.into_iter().find(|cause| !waits.contains(cause) && of(cause).count == 1).expect("one access");
        (cause, of(&cause).time)
    }

    fn page(&mut self, cpu: usize, pfn: u64, access: Access) -> Cause {
        self.on(cpu).served(Accessed::Pages, |engine| engine.touch_page(Pfn(pfn), access)).0
    }

    fn line(&mut self, cpu: usize, line: usize, access: Access) -> Cause {
        let address = CONTROL + 64 * line;
        let use_line = |engine: &mut Self| {
            let line = engine.line_at(address).unwrap();
            if !engine.use_at_hand(line, address, LINE, access) {
                engine.fetch_line(line, LINE, access);
            }
        };
        self.on(cpu).served(LINE, use_line).0
    }
}

#[test]
fn a_page_structure_is_served_by_its_nearest_holder() {
    let mut engine = engine();
    assert_eq!(engine.page(0, 0x1000, Access::Write), Cause::LocalMemory);
    assert_eq!(engine.page(0, 0x1000, Access::Read), Cause::PrivateHit);
    assert_eq!(engine.page(20, 0x1000, Access::Write), Cause::PrivateHit, "the other thread of the core");
    assert_eq!(engine.page(1, 0x1000, Access::Read), Cause::SameGroup);
    assert_eq!(engine.page(1, 0x1000, Access::Write), Cause::Upgrade, "CPU 0 has a copy");
    assert_eq!(engine.page(1, 0x1000, Access::Write), Cause::PrivateHit);
    assert_eq!(engine.page(10, 0x1000, Access::ReadModifyWrite), Cause::OtherSocket);
    assert_eq!(engine.page(10, 0x1001, Access::Read), Cause::RemoteMemory);
    assert_eq!(engine.page(10, 0x9000, Access::Read), Cause::LocalMemory);
    assert_eq!(engine.page(11, 0x9000, Access::Read), Cause::SharedHit, "no core wrote to it");
}

#[test]
fn other_lines_are_served_by_their_nearest_holder() {
    let mut engine = engine();
    assert_eq!(engine.line(0, 5, Access::ReadModifyWrite), Cause::LocalMemory);
    assert_eq!(engine.line(0, 5, Access::ReadModifyWrite), Cause::PrivateHit);
    assert_eq!(engine.line(1, 5, Access::Read), Cause::SameGroup);
    assert_eq!(engine.line(2, 5, Access::Read), Cause::SharedHit);
    assert_eq!(engine.line(0, 5, Access::Read), Cause::PrivateHit, "readers share a line");
    assert_eq!(engine.line(0, 5, Access::Write), Cause::Upgrade);
    assert_eq!(engine.line(1, 5, Access::Read), Cause::SameGroup);
    assert_eq!(engine.line(10, 5, Access::Read), Cause::OtherSocket);
    assert_eq!(engine.line(10, 6, Access::Read), Cause::LocalMemory);
}

#[test]
fn allocation_map_lines_are_served_by_their_nearest_holder() {
    let mut engine = engine();
    let byte = |engine: &mut Engine, cpu: usize, at: usize, access| {
        let allocation_map = Accessed::Line(LineKind::AllocationMap);
        engine.on(cpu).served(allocation_map, |engine| engine.touch_allocation_map(CONTROL + at, access)).0
    };
    assert_eq!(byte(&mut engine, 10, 0, Access::Write), Cause::LocalMemory);
    assert_eq!(byte(&mut engine, 10, 63, Access::ReadModifyWrite), Cause::PrivateHit);
    assert_eq!(byte(&mut engine, 10, 64, Access::Write), Cause::LocalMemory, "another line");
    assert_eq!(byte(&mut engine, 0, 1, Access::ReadModifyWrite), Cause::OtherSocket);
    assert_eq!(byte(&mut engine, 1, 2, Access::Write), Cause::SameGroup);
    engine.touch_allocation_map(CONTROL + (1 << 20), Access::Write);
}

#[test]
fn a_cpu_ahead_yields_before_a_fetch_unless_a_lock_orders_the_line() {
    let mut engine = engine();
    engine.on(1).context.clock += Picos::from_ns(100);
    let mut use_line = |kind, at| engine.use_line(CONTROL + at, Accessed::Line(kind), Access::Write);
    assert!(matches!(use_line(LineKind::Mechanism, 0), Some(InOrder::Fetch(_))));
    assert_eq!(use_line(LineKind::FreeLists, 64), None);
    assert_eq!(use_line(LineKind::LruLists, 128), None);
}

#[test]
fn a_contended_line_moves_from_core_to_core() {
    let mut engine = engine();
    engine.line(9, 5, Access::ReadModifyWrite);
    let begin = engine.on(9).now();
    // All but the first core ask at once; each transfer takes as long as one within the socket.
    let transfer = engine.speeds.get(engine.speed_of(0)).cost(AccessKind::Exchange, Cause::SameGroup);
    for cpu in 0..9 {
        engine.on(cpu).context.clock = begin;
        assert_eq!(engine.line(cpu, 5, Access::ReadModifyWrite), Cause::SameGroup);
        assert_eq!(engine.now() - begin, Picos(transfer.0 * (cpu as u64 + 1)));
    }
}

#[test]
fn a_spinning_thread_slows_its_sibling_less_than_a_working_one() {
    let mut engine = engine_with(|machine| {
        (machine.clock.smt_slowdown, machine.clock.spin_slowdown) = (2.0, Some(1.25));
    });
    let id = LockId::Zone(ZoneId(0));
    let cycles =
        |engine: &Engine, cpu: usize| (engine.speeds.get(engine.speed_of(cpu)).kilocycle as f64 / 1024.0).round();
    assert_eq!([0, 20, 1].map(|cpu| cycles(&engine, cpu)), [2000.0; 3]);
    engine.on(0).enqueue(0x2000, id);
    assert_eq!([0, 20, 1].map(|cpu| cycles(&engine, cpu)), [2000.0, 1250.0, 2000.0]);
    engine.on(20).enqueue(0x2000, id);
    assert_eq!([0, 20].map(|cpu| cycles(&engine, cpu)), [1250.0; 2], "both spin");
    engine.on(1).hand_over(0x2000, id);
    assert_eq!([0, 20].map(|cpu| cycles(&engine, cpu)), [1250.0, 2000.0], "the first works again");
    engine.on(0).task_ended();
    assert_eq!(cycles(&engine, 20), 1000.0, "the other thread of the core is idle");
}

#[test]
fn pages_leave_a_private_cache_and_then_a_shared_one() {
    let mut engine = engine();
    let lines = (256 << 10) / LINE_BYTES;
    let touch_all =
        |engine: &mut Engine, count: u64| (0..count).for_each(|at| engine.touch_page(Pfn(0x1000 + at), Access::Write));
    touch_all(engine.on(0), lines / 2);
    touch_all(engine.on(0), lines / 2);
    let account = |engine: &Engine, cause| engine.account().of(Spent::Access(Accessed::Pages, cause)).count;
    assert_eq!((account(&engine, Cause::PrivateHit), account(&engine, Cause::LocalMemory)), (lines / 2, lines / 2));
    touch_all(engine.on(0), 4 * lines);
    let before = (account(&engine, Cause::PrivateHit), account(&engine, Cause::SharedHit));
    touch_all(engine.on(0), 4 * lines);
    let after = (account(&engine, Cause::PrivateHit), account(&engine, Cause::SharedHit));
    assert_eq!(
        (after.0 - before.0, after.1 - before.1),
        (0, 4 * lines),
        "a working set above the capacity misses always"
    );
    // Zeroing pages brings in their lines.
    let pages = (32 << 20) / PAGE_BYTES;
    (0..pages).for_each(|at| engine.on(0).write_frame(None, Pfn(0x1000 + at), KernelCost::ZeroPage));
    assert_eq!(engine.page(0, 0x1000, Access::Read), Cause::LocalMemory);
}

#[test]
fn addresses_outside_the_yard_cost_nothing() {
    let mut engine = engine();
    assert_eq!(
        [CONTROL - 1, CONTROL, CONTROL + 64, CONTROL + (1 << 20)].map(|at| engine.line_at(at)),
        [None, Some(0), Some(1), None]
    );
    let before = engine.on(0).now();
    engine.touch_page(Pfn(0), Access::Write);
    engine.touch_page(Pfn(0x11000), Access::Write);
    assert_eq!(engine.now(), before);
}

#[test]
fn the_simulator_holds_less_than_half_the_memory_map() {
    for name in Machine::names() {
        let machine = Machine::built_in(name).unwrap();
        let pages = 1 << 20;
        let frames = PfnRange::new(Pfn(0), PageCount(pages));
        // A control region of one byte for each page and a little is what a yard has.
        let regions = YardRegions {
            frames,
            nodes: vec![(frames, NodeId(0))],
            control: (CONTROL, pages as usize * 5 / 4),
            bytes: (0, 0),
            map: 0,
            host_pages: HostPages::Huge,
        };
        let bytes = Engine::new(&machine, regions, Vec::new()).unwrap().bytes() as u64;
        assert!(bytes < pages * 32, "{name}: {} bytes for each page", bytes / pages);
    }
}
