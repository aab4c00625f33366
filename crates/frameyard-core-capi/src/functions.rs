//! The C functions of a yard.

use crate::handle::fy_yard;

frameyard_c_calls::functions!(fy_yard);
frameyard_c_calls::device_functions!(fy_yard);
