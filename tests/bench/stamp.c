/* stamp.c - the smallest agent: it says when it began and when it was handed a line, in monotonic
 * microseconds, into the file named first. */
#include <stdio.h>
#include <time.h>

static long long now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000LL + ts.tv_nsec / 1000;
}

int main(int argc, char **argv)
{
    long long began = now_us();
    static char line[65536];

    while (argc > 1 && fgets(line, sizeof line, stdin) != NULL) {
        long long handed = now_us();
        FILE *f = fopen(argv[1], "a");
        if (f == NULL)
            return 1;
        fprintf(f, "%lld %lld\n", began, handed);
        fclose(f);
        printf("ok\n");
        fflush(stdout);
    }
    return 0;
}
