/* Two networks in one firmware: their self-tests, then a call of each with real numbers. */
#include "board/board.h"
#include "motion.h"
#include "sound.h"

static motion_state motion_memory;
static sound_state sound_memory;

/* Print a number with three decimals. */
static void print_number(float number)
{
    int32_t thousandths = (int32_t)(number * 1000.0f + ((number < 0.0f) ? -0.5f : 0.5f));
    char text[16];
    int place = 15;
    const int is_negative = thousandths < 0;
    text[place] = '\0';
    if (is_negative) {
        thousandths = -thousandths;
    }
    for (int digits = 0; (digits < 4) || (thousandths > 0); digits++) {
        if (digits == 3) {
            text[--place] = '.';
        }
        text[--place] = (char)('0' + thousandths % 10);
        thousandths /= 10;
    }
    if (is_negative) {
        text[--place] = '-';
    }
    board_print(&text[place]);
    board_print(" ");
}

static void run_motion(void)
{
    int8_t samples[MOTION_SAMPLES_SIZE];
    int8_t scores[MOTION_SCORES_SIZE];
    int32_t best[MOTION_BEST_SIZE];
    for (int i = 0; i < MOTION_SAMPLES_SIZE; i++) {
        samples[i] = motion_quantize_samples((float)(i % 17) / 8.0f - 1.0f);
    }
    motion_run(&motion_memory, samples, scores, best);
    board_print("motion: ");
    for (int i = 0; i < MOTION_SCORES_SIZE; i++) {
        print_number(motion_dequantize_scores(scores[i]));
    }
    board_print("\n");
}

static void run_sound(void)
{
    int8_t spectrogram[SOUND_SPECTROGRAM_SIZE];
    int8_t scores[SOUND_SCORES_SIZE];
    int32_t best[SOUND_BEST_SIZE];
    for (int i = 0; i < SOUND_SPECTROGRAM_SIZE; i++) {
        spectrogram[i] = sound_quantize_spectrogram((float)(i % 31) / 15.0f - 1.0f);
    }
    sound_run(&sound_memory, spectrogram, scores, best);
    board_print("sound: ");
    for (int i = 0; i < SOUND_SCORES_SIZE; i++) {
        print_number(sound_dequantize_scores(scores[i]));
    }
    board_print("\n");
}

int main(void)
{
    const int32_t failed = (motion_self_test() != 0) ? 1 : ((sound_self_test() != 0) ? 2 : 0);
    board_print((failed == 0) ? "self-tests passed\n" : "a self-test failed\n");
    run_motion();
    run_sound();
    return (int)failed;
}
