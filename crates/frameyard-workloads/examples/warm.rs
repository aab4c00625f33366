use frameyard::boot::ZoneLimits;
use frameyard::policy::ZonePolicy;
use frameyard::{MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};
use frameyard_host::{Backing, HostTopology, HostYard};
use frameyard_workloads::alloc::{AccessKind, AllocWorkload};

fn main() {
    let mut args = std::env::args().skip(1);
    let rounds: usize = args.next().unwrap().parse().unwrap();
    let order = Order(args.next().unwrap().parse().unwrap());
    let cpus = [NodeId(0); 2];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, policy: ZonePolicy::Depot, ..YardConfig::new(&cpus) };
    let memory = [(PfnRange::new(Pfn(0), PageCount(1 << 21)), NodeId(0))];
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let host = HostTopology::current().unwrap();
    let yard = HostYard::builder().backing(Backing::Phantom).build(&table, &config, &host).unwrap();
    for (kind, tasks) in
        [(AccessKind::Bulk, 1), (AccessKind::Random, 1), (AccessKind::Bulk, 2), (AccessKind::Random, 2)]
    {
        let (mut gets, mut puts) = (Vec::new(), Vec::new());
        for seed in 0..rounds {
            let workload = AllocWorkload { kind, order, tasks: tasks.try_into().unwrap(), seed: seed as u64 };
            let run = workload.run(&yard, &host).unwrap();
            if seed > 0 {
                gets.push(run.get_ns);
                puts.push(run.put_ns);
            }
        }
        gets.sort_by(f64::total_cmp);
        puts.sort_by(f64::total_cmp);
        let at = |v: &Vec<f64>| format!("{:.1} (least {:.1})", v[v.len() / 2], v[0]);
        println!("{:?} {tasks}: get {} put {}", kind.name(), at(&gets), at(&puts));
    }
    yard.validate().unwrap();
}
