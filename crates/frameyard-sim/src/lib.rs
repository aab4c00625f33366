//! Simulated machines for Frameyard: the real allocator, unmodified, on virtual CPUs with virtual clocks, caches, memory
//! channels and locks, deterministically, on one thread of the host.
//!
//! A [`Machine`] is a description: topology, caches, what accesses cost, clocks, bandwidth, locks. [`SimYard`] is a yard on such a
//! machine; [`SimYard::run`] runs tasks on its CPUs. [`SimPlatform`] is what charges virtual time, and [`Account`] says where
//! it went. The model, its parameters and its limits stand in `docs/simulation.md`.
//!
//! `unsafe` is confined to four modules: coroutines (`fiber`), state of one thread (`confined`), memory of the host (`region`),
//! and the creation of a yard in it (`sim_yard`).
//!
//! ```
//! use frameyard::{CpuId, Gfp, Order, PageCount};
//! use frameyard::policy::ZonePolicy;
//! use frameyard::watermarks::PcpSizing;
//! use frameyard_sim::{Machine, SimConfig, SimYard, Spent};
//!
//! let machine = Machine::built_in("broadwell-40")?;
//! let config = SimConfig {
//!     node_memory: PageCount(1 << 16),
//!     policy: ZonePolicy::Vanilla416,
//!     sizing: PcpSizing::Classic,
//!     costs: Vec::new(),
//! };
//! let yard = SimYard::new(&machine, &config)?;
//! let task = || {
//!     for _ in 0..1000 {
//!         let frame = yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).expect("a frame");
//!         yard.free(frame, Order::ZERO).expect("an allocated frame");
//!     }
//! };
//! let end = yard.run((0..40).map(|cpu| (CpuId(cpu), Box::new(task) as Box<dyn FnOnce()>)).collect())?;
//! let account = yard.platform().account();
//! assert_eq!(account.total().0, 40 * end.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod account;
pub mod bring_up;
mod cache;
mod calibration;
mod channel;
mod confined;
mod engine;
mod fiber;
mod frame_bytes;
mod lines;
mod machine;
mod page_fault;
mod parallel_exit;
mod platform;
mod profile;
mod region;
mod sim_yard;
mod time;
mod workers;

pub use account::{Accessed, Account, Cause, CostId, Share, Spent};
pub use cache::LINE_BYTES;
pub use calibration::{
    Effort, Errors, FaultPredictor, Fit, FitError, Fitted, FittedParameter, FreeParameters, Measured, ModeErrors,
    OrderCount, ParseSelectionError, Point, PolicyErrors, Prediction, Predictor, PredictorPool, RateTable, RecordError,
    Role, Selection, TableError, record,
};
pub use engine::LockStats;
pub use frameyard_machines::{
    AccessCosts, BringUpCosts, Caches, Calibration, Clock, KernelOverhead, Lock, LockMethod, Memory, Topology,
};
pub use machine::{KernelCost, Machine, MachineError};
pub use page_fault::{FaultLoop, FaultRun, Mode, Start};
pub use parallel_exit::{ExitRun, ParallelExit};
pub use platform::SimPlatform;
pub use profile::Profile;
pub use sim_yard::{SimConfig, SimError, SimYard};
pub use time::Picos;
