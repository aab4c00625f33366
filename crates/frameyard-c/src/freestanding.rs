//! What a program without `std` must have: the panic handler and the memory functions.
//!
//! The compiler calls `memcpy`, `memmove`, `memset`, `memcmp` (`bcmp`) and `strlen` by name, in Rust as in C. The ones here are weak: a kernel
//! that has its own uses those. They use string instructions of x86-64, which recent processors run at full speed from about 128 bytes on.

use core::panic::PanicInfo;

#[cfg(feature = "kernel")]
use crate::kernel::platform;

#[panic_handler]
fn panic(_info: &PanicInfo<'_>) -> ! {
    #[cfg(feature = "kernel")]
    match _info.location() {
        Some(at) => platform::panicked(format_args!("{} ({}:{})", _info.message(), at.file(), at.line())),
        None => platform::panicked(format_args!("{}", _info.message())),
    }
    loop {
        core::hint::spin_loop();
    }
}

/// The unwinding tables of Rust's `core` name it. Nothing unwinds here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".weak memcpy",
    ".weak memmove",
    ".weak memset",
    ".weak memcmp",
    ".weak bcmp",
    ".weak strlen",
    ".type memcpy, @function",
    ".type memmove, @function",
    ".type memset, @function",
    ".type memcmp, @function",
    ".type bcmp, @function",
    ".type strlen, @function",
    "memmove:",
    // To an address inside the source: from the end.
    "mov rax, rdi",
    "sub rax, rsi",
    "cmp rax, rdx",
    "jae 3f",
    "mov rax, rdi",
    "mov rcx, rdx",
    "lea rdi, [rdi + rdx - 1]",
    "lea rsi, [rsi + rdx - 1]",
    "std",
    "rep movsb",
    "cld",
    "ret",
    "memcpy:",
    "3:",
    "mov rax, rdi",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    "memset:",
    "mov r8, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    "memcmp:",
    "bcmp:",
    "xor eax, eax",
    "mov rcx, rdx",
    // Equal if there is no byte: `repe` would leave the flags alone.
    "cmp rax, rax",
    "repe cmpsb",
    "je 2f",
    "movzx eax, byte ptr [rdi - 1]",
    "movzx ecx, byte ptr [rsi - 1]",
    "sub eax, ecx",
    "2:",
    "ret",
    "strlen:",
    "xor eax, eax",
    "mov rcx, -1",
    "repne scasb",
    "mov rax, -2",
    "sub rax, rcx",
    "ret",
);
