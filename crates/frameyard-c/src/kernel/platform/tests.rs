use super::*;

unsafe extern "C" fn enter(_context: *mut c_void) -> fy_guard {
    fy_guard { cpu: 0, state: 0 }
}

unsafe extern "C" fn leave(_context: *mut c_void, _guard: fy_guard) {}

unsafe extern "C" fn current_cpu(_context: *mut c_void) -> u32 {
    0
}

unsafe extern "C" fn first(_text: *const c_char) {}

unsafe extern "C" fn second(text: *const c_char) {
    assert!(!text.is_null(), "unlike `first`, so that the two have addresses of their own");
}

fn kernel(panic: unsafe extern "C" fn(*const c_char)) -> Kernel {
    let ops = fy_platform_ops {
        size: size_of::<fy_platform_ops>(),
        context: null_mut(),
        enter: Some(enter),
        leave: Some(leave),
        current_cpu: Some(current_cpu),
        end_sequences: None,
        spin: None,
        wait: None,
        frame_bytes: None,
        zero: None,
        log: None,
        panic: Some(panic),
    };
    Kernel::new(&ops).expect("the required operations are there")
}

fn receiver() -> *mut c_void {
    PANIC.load(Ordering::Relaxed)
}

#[test]
fn the_operation_of_a_yard_that_is_not_made_is_forgotten() {
    let (first_at, second_at) = (first as *mut c_void, second as *mut c_void);
    kernel(first).receive_panics().keep();
    let making = kernel(second).receive_panics();
    assert_eq!(receiver(), second_at, "a failure while the yard is made is the new kernel's");
    drop(making);
    assert_eq!(receiver(), first_at);
    let making = kernel(second).receive_panics();
    kernel(first).receive_panics().keep();
    drop(making);
    assert_eq!(receiver(), first_at, "another CPU has made a yard meanwhile");
    kernel(second).receive_panics().keep();
    assert_eq!(receiver(), second_at);
}
