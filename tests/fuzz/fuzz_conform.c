/* What a stranger's connector or gateway sends to `bellhop conformance`: read, checked and taken
 * without a crash, in pieces of any size. */
#include "cli/conform.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct conform c = {0};
    struct frames f;
    size_t half = size / 2;

    for (int side = 0; side <= 1; side++) {
        frames_init(&f, side == 1);
        frames_asked(&f, STR("r1"));
        frames_take(&c, &f, str_make(data, half));
        frames_take(&c, &f, str_make(data + half, size - half));
        while (json_type(frames_next(&f, "")) != JSON_ABSENT)
            ;
        frames_end(&c, &f);
        frames_done(&f);
    }
    buf_done(&c.came);
    arena_done(&c.arena);
    return 0;
}
