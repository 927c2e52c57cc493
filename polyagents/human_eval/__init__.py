"""Human evaluation: which speaker people would rather talk to, of whole conversations side by side.

After Li et al. 2019 (ACUTE-Eval, arXiv 1909.03087): conversations -> pairs -> judgements -> report.
"""
