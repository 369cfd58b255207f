/* shout.c - an agent in C without any library: it shouts back.
 *
 *      cc -o shout examples/agents/shout.c && bellhop agent -- ./shout
 *
 * The text goes from JSON to JSON as it stands; only letters outside of escapes are changed. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void shout(const char *p)
{
    printf("{\"op\":\"send\",\"done\":true,\"content\":\"");
    while (*p != '"' && *p != '\0') {
        if (*p == '\\') {
            int n = p[1] == 'u' ? 6 : 2; /* \n, \", \u00e9: as they are */
            printf("%.*s", n, p);
            p += strlen(p) < (size_t)n ? strlen(p) : (size_t)n;
        } else {
            putchar(toupper((unsigned char)*p++));
        }
    }
    printf("!\"}\n");
    fflush(stdout); /* a pipe is not a terminal: without this the answer waits for more */
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;

    while (getline(&line, &room, stdin) > 0) {
        const char *text = strstr(line, "\"text\":\"");
        if (strncmp(line, "{\"type\":\"message\"", 17) == 0 && text != NULL)
            shout(text + 8);
    }
    free(line);
    return 0;
}
