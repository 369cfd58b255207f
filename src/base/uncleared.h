/* uncleared.h - for a large local variable on a hot path.
 *
 * The build clears every local variable first.  One that is written before it is read, and is so
 * large that clearing it costs more than the function does, is declared BH_UNCLEARED. */
#pragma once

#define BH_UNCLEARED __attribute__((uninitialized))
