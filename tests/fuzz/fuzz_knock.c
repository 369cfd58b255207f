/* Whoever knocks at a sleeper, and what the connector is said to have answered: a small program
 * without our libraries reads both. */
#include <stdlib.h>
#include <string.h>
#include "agent/sleeper/ask.h"
#include "agent/sleeper/knock.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char nonce[PROBE_NONCE] = "00112233445566778899aabbccddeeff";
    struct answer a;
    char *text = malloc(size + 1);

    if (text == NULL)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    if (size < KNOCK_HEAD && knock_read(text, nonce) == KNOCK_PROBE && strstr(text, nonce) == NULL)
        abort(); /* nobody else knows it */
    if (size < ASK_BYTES) {
        answer_read(text, &a);
        if (strlen(a.state) >= sizeof a.state || strlen(a.wake_url) >= sizeof a.wake_url ||
            strlen(a.problem) >= sizeof a.problem)
            abort();
    }
    free(text);
    return 0;
}
