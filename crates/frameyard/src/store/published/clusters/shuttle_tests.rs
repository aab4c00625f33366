//! Clusters on a whole yard, under schedules that shuttle chooses.

use crate::policy::ZonePolicy;
use crate::shuttle_tests::{DAMAGES, assert_fails, busy};
use crate::store::published::clusters::record::Record;
use crate::sync::{Weakness, weakened};

#[test]
fn finds_a_detached_cluster_that_is_taken_for_a_listed_one() {
    let lost = Weakness::LostStoresOf(Record::HELD.bits());
    weakened(lost, || assert_fails(|| busy(ZonePolicy::ClusterBulk), &DAMAGES));
}
