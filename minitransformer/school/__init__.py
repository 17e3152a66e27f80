"""Teaching: exercises and grading, looking into models, comparisons, pictures, the stepper and the site."""
