use super::*;
use crate::VmConfig;
use crate::test_yard::{TestYard, touches_of};

#[test]
fn creating_an_object_looks_at_no_full_frame() {
    for kind in ObjectKind::ALL {
        let yard = TestYard::new();
        let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
        let slots = vm.slots(kind);
        let mut made: Vec<ObjectId> = (0..200 * slots).map(|_| vm.new_object(kind).unwrap()).collect();
        let frames = vm.object_frames();
        // A slot in any frame is found again.
        for free in [vec![0], vec![100 * slots], vec![3 * slots, 150 * slots + 1, 150 * slots], vec![200 * slots - 1]] {
            free.iter().for_each(|at| vm.delete_object(kind, made[*at]));
            vm.validate_objects().unwrap();
            for at in free {
                let (touched, id) = touches_of(|| vm.new_object(kind).unwrap());
                assert!(touched <= 12, "{}: {touched} page structures touched", kind.name());
                made[at] = id;
            }
            vm.validate_objects().unwrap();
        }
        assert_eq!(vm.object_frames(), frames);
        made.into_iter().for_each(|id| vm.delete_object(kind, id));
        vm.validate_objects().unwrap();
        vm.finish();
    }
}
