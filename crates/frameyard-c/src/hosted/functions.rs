//! The C functions of a yard.

use crate::hosted::handle::fy_yard;

crate::shared::functions!(fy_yard, unsafe(no_mangle));
crate::shared::device_functions!(fy_yard, unsafe(no_mangle));
