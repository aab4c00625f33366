/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Reports of the kernel's self-tests, counted. */
#ifndef FRAMEYARD_KSELFTEST_H
#define FRAMEYARD_KSELFTEST_H

void ksft_test_result_pass(const char *format, ...);
void ksft_test_result_fail(const char *format, ...);

#endif
